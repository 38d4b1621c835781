"""Fingerprints of models and tools, by which kept replies are found again."""

import hashlib
import json
from pathlib import Path
from typing import Any

from vtune.runs.agent.tools import ToolsRecipe


def model_print(model: str) -> str:
    """Fingerprint of a model: the SHA-256 of its folder's files, or its name on the hub."""
    folder = Path(model)
    if not folder.is_dir():
        return model
    prints = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as stream:
                prints[str(path.relative_to(folder))] = hashlib.file_digest(stream, "sha256").hexdigest()
    return hashlib.sha256(json.dumps(prints, sort_keys=True).encode()).hexdigest()


def tools_print(tools: ToolsRecipe | None) -> dict[str, Any] | None:
    """Fingerprint of tools: their settings and their index files."""
    if tools is None:
        return None
    folders = [section.index for section in (tools.text_search, tools.image_search) if section is not None]
    return tools.model_dump(mode="json") | {"indexes": [model_print(name) for name in folders if name]}

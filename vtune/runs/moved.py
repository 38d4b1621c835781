"""Inputs that have moved by the time a run resumes: they are recognised by their contents."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vtune.errors import RecipeError

BLOCKS, BLOCK = 1024, 2**12
"""Pieces of each file of weights that are read, and bytes of a piece, ours: a file may have many GB."""


def weights_print(model: str | None) -> str | None:
    """SHA-256 over the files of a model's folder: their names, sizes, and pieces from all over them.

    A change that covers a thousandth of a file in one piece is seen, as that of a connector; one of a few
    bytes may not be. Model cards and hidden files, which downloads bring or not, are passed over. None where
    there is no model, or its name is that of no folder, as on the hub, where it says which weights they are.

    Raises:
        RecipeError: If a file cannot be read.
    """
    if model is None or not (folder := Path(model)).is_dir():
        return None
    found = hashlib.sha256()
    try:
        for file in sorted(path for path in folder.iterdir() if path.is_file() and _of_model(path.name)):
            size = file.stat().st_size
            found.update(f"{file.name}\0{size}\0".encode())
            with file.open("rb") as stream:
                for offset in _offsets(size):
                    stream.seek(offset)
                    found.update(stream.read(BLOCK))
    except OSError as error:
        raise RecipeError(f"cannot read {error.filename}: {error.strerror}", fix="check the folder") from None
    return found.hexdigest()


def _of_model(name: str) -> bool:
    return not name.startswith(".") and not name.endswith(".md")


def _offsets(size: int) -> range | list[int]:
    if size <= BLOCKS * BLOCK:
        return range(0, size, BLOCK)
    return [number * (size - BLOCK) // (BLOCKS - 1) for number in range(BLOCKS)]


def has_moved(key: str, before: Any, now: Any, prints: Mapping[str, str]) -> bool:
    """Whether a key of a recipe that differs names the same content at another place.

    Args:
        key: Of the recipe.
        before: `environment.json` of the run.
        now: What the recipe says of the key.
        prints: Data file -> its fingerprint now.
    """
    if key == "data":
        return list(prints.values()) == list(before["data"].values())
    known = before.get("weights")
    return key == "model" and known is not None and weights_print(now) == known

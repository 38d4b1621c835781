"""Inputs that have moved by the time a run resumes: they are recognised by their contents."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vtune.errors import RecipeError
from vtune.files.json_text import parse_json
from vtune.files.reading import read_text
from vtune.tools.store import MANIFEST

BLOCKS, BLOCK = 1024, 2**12
"""Pieces read from each file, and bytes per piece, ours: weights and indexes may have many GB."""

CONTENT = "the content of "
"""Prefix for the key of an index that is at the same path but holds something else."""

SEARCHES = ("text_search", "image_search")
"""Sections of `tools` that may name an index."""


def weights_print(model: str | None) -> str | None:
    """SHA-256 over the files of a model's folder: their names, sizes, and pieces from all over them.

    A change that covers a thousandth of a file in one piece, such as another connector, is noticed; one of a
    few bytes may not be. Model cards and hidden files, which a download may or may not bring, are skipped.
    None if there is no model, or its name is not a folder: a hub name itself identifies the weights.

    Raises:
        RecipeError: If a file cannot be read.
    """
    if model is None or not (folder := Path(model)).is_dir():
        return None
    found = hashlib.sha256()
    _add(found, sorted(path for path in folder.iterdir() if path.is_file() and _of_model(path.name)))
    return found.hexdigest()


def index_print(folder: Path) -> str | None:
    """SHA-256 over an index: its manifest, and its other files as in `weights_print`.

    The encoder's path at the time of building does not count, but its weights do. None if there is no index.

    Raises:
        RecipeError: If a file cannot be read.
    """
    try:
        facts = parse_json(read_text(folder / MANIFEST))
    except (OSError, ValueError):
        return None
    if isinstance(facts, dict) and isinstance(facts.get("encoder"), dict):
        facts["encoder"].pop("model", None)
    found = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    files = (path for path in folder.iterdir() if path.is_file() and _of_model(path.name))
    _add(found, sorted(path for path in files if path.name != MANIFEST))
    return found.hexdigest()


def index_prints(recipe: Any) -> dict[str, str]:
    """Key -> fingerprint of the index that a recipe or suite names there; unknown for a service's index."""
    found = {}
    for name in SEARCHES:
        section = getattr(getattr(recipe, "tools", None), name, None)
        folder = getattr(section, "index", None)
        if folder is not None and (value := index_print(Path(folder))) is not None:
            found[f"tools.{name}.index"] = value
    return found


def by_content(
    keys: Iterable[str], before: Mapping[str, str], now: Mapping[str, str], prefix: str = ""
) -> list[str]:
    """Keys that differ; indexes are compared by their content if it is known on both sides.

    Args:
        keys: Keys that differ.
        before: As from `index_prints`; empty for runs older than these fingerprints.
        now: The same for the other side.
        prefix: Prefix of a recipe's keys within `keys`.
    """
    alike = {f"{prefix}{key}": before[key] == now[key] for key in sorted(before.keys() & now.keys())}
    found = [key for key in keys if not alike.get(key)]
    return found + [f"{CONTENT}{key}" for key, same in alike.items() if not same and key not in found]


def _add(digest: Any, files: Sequence[Path]) -> None:
    """Add the names and sizes of files, and pieces from all over them, to a digest."""
    try:
        for file in files:
            size = file.stat().st_size
            digest.update(f"{file.name}\0{size}\0".encode())
            with file.open("rb") as stream:
                for offset in _offsets(size):
                    stream.seek(offset)
                    digest.update(stream.read(BLOCK))
    except OSError as error:
        raise RecipeError(f"cannot read {error.filename}: {error.strerror}", fix="check the folder") from None


def _of_model(name: str) -> bool:
    return not name.startswith(".") and not name.endswith(".md")


def _offsets(size: int) -> range | list[int]:
    if size <= BLOCKS * BLOCK:
        return range(0, size, BLOCK)
    return [number * (size - BLOCK) // (BLOCKS - 1) for number in range(BLOCKS)]


def has_moved(key: str, before: Any, now: Any, prints: Mapping[str, str]) -> bool:
    """Whether a recipe key that differs names the same content in another place.

    Args:
        key: Key of the recipe.
        before: `environment.json` of the run.
        now: The recipe's value for the key.
        prints: Data file -> its fingerprint now.
    """
    if key == "data":
        return list(prints.values()) == list(before["data"].values())
    known = before.get("weights")
    return key == "model" and known is not None and weights_print(now) == known

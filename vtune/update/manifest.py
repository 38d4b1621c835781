"""A checkpoint's manifest: its step, and the size and checksum of each file."""

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vtune.errors import DataError
from vtune.files.json_text import read_record

MANIFEST = "manifest.json"
"""Written last, before the folder gets its name: a checkpoint without it was never finished."""
ADAPTERS = "adapters"
"""A checkpoint's folder with the adapters alone, in peft's format."""
REMOVE = "remove this checkpoint"
PIECE = 1 << 22
"""Bytes read at a time."""


class FileFacts(NamedTuple):
    """What a file has to be like later."""

    size: int
    """Bytes."""
    crc32: int
    """Reveals accidental damage, not forgery, at several times the speed of a cryptographic hash (measured on
    two cores: 1.1 GB/s, SHA-256 0.4, BLAKE2b 0.2): a checkpoint may have 100 GB."""


def file_facts(path: Path) -> FileFacts:
    """Read a file."""
    size = checksum = 0
    piece = memoryview(bytearray(PIECE))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(piece):
            size += count
            checksum = zlib.crc32(piece[:count], checksum)
    return FileFacts(size, checksum)


def write_manifest(folder: Path, step: int, files: Mapping[str, FileFacts]) -> None:
    """Write the manifest of a checkpoint; `files` are named by their paths in it."""
    facts = {name: files[name]._asdict() for name in sorted(files)}
    (folder / MANIFEST).write_text(json.dumps({"step": step, "files": facts}) + "\n", encoding="utf-8")


def checkpoint_step(folder: Path) -> int:
    """The number of updates in a checkpoint.

    Raises:
        DataError: If its manifest cannot be read.
    """
    try:
        return int(_record(folder)["step"])
    except (ValueError, TypeError) as error:
        raise _unreadable(folder, error) from None


def damage(folder: Path, read: Callable[[Path], bool]) -> str | None:
    """What is wrong with a checkpoint's files, None if nothing is known to be.

    Args:
        folder: The checkpoint. In one of an earlier version the manifest lists no files.
        read: Whether a file is read to compare its checksum. Sizes are always compared.

    Raises:
        DataError: If its manifest cannot be read.
    """
    for name, facts in _files(folder).items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if (size := path.stat().st_size) != facts.size:
            return f"{name} has {size} bytes, and had {facts.size} when it was written"
        if read(path) and file_facts(path) != facts:
            return f"{name} is not as it was written: its checksum differs"
    return None


def check_model(folder: Path) -> None:
    """Check the model in a folder against the manifest there, or beside it (adapters), if there is one.

    Raises:
        DataError: If a file of the checkpoint is damaged.
    """
    root = folder.parent if folder.name == ADAPTERS else folder
    if (root / MANIFEST).is_file() and (found := damage(root, lambda path: path.parent == folder)):
        raise DataError(
            f"the checkpoint is damaged: {found}", where=str(root), fix="restore it, or take an older one"
        )


def _files(folder: Path) -> dict[str, FileFacts]:
    try:
        files = _record(folder).get("files", {})
        return {name: FileFacts(int(one["size"]), int(one["crc32"])) for name, one in files.items()}
    except (AttributeError, KeyError, ValueError, TypeError) as error:
        raise _unreadable(folder, error) from None


def _record(folder: Path) -> dict[str, Any]:
    return read_record(folder / MANIFEST, "step", fix=REMOVE)


def _unreadable(folder: Path, error: Exception) -> DataError:
    return DataError(f"{folder / MANIFEST} cannot be read: {error}", fix=REMOVE)

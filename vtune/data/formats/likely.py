"""Which published layout a file looks like, so that one is not read as another."""

import csv
import json
from pathlib import Path
from typing import Any

from vtune.data.formats.building import Options
from vtune.data.formats.source import files, read_rows
from vtune.data.formats.table import FORMATS, Glance
from vtune.errors import DataError
from vtune.files.reading import open_input

HEAD = 2**16
"""Bytes to examine of a file that is not read in rows."""
ENDINGS = (".parquet", ".jsonl", ".json", ".tsv")


def check_look(name: str, path: Path, options: Options) -> None:
    """Check that the files under a path look like the layout they will be read with, or like none.

    Args:
        name: A key of `FORMATS` except `hf`, which reads whatever its columns say.
        path: A file or folder.
        options: Options of the import.

    Raises:
        DataError: Names the first file that looks like another layout, and the format to import it with.
    """
    if path.is_dir() and (look := look_of(path)) is not None:
        found = [(path, look)]
    else:
        there = [file for file, _ in files(path, ENDINGS)] if path.exists() else []
        found = [(file, look) for file in there if (look := look_of(file)) is not None]
    right = (FORMATS[name].looks, *FORMATS[name].shares(options))
    for file, look in found:
        if FORMATS[look].looks not in right:
            raise DataError(
                f"this looks like a file of the format `{look}`, not of `{name}`",
                where=str(file),
                fix=f"vtune data import {look} {file} …",
            )


def look_of(path: Path) -> str | None:
    """The layout that a file or folder looks like; None if it is unclear."""
    return look_at(glance(path))


def look_at(shown: Glance) -> str | None:
    """The one layout that claims it; None if none or several do."""
    found = [name for name, layout in FORMATS.items() if layout.looks(shown)]
    if len(found) > 1:
        found = [name for name in found if not FORMATS[name].broad]
    return found[0] if len(found) == 1 else None


def glance(path: Path) -> Glance:
    """What a file shows in its first row or first characters; nothing if it cannot be read."""
    if path.is_dir() or path.suffix not in ENDINGS:
        return Glance(path)
    if path.suffix in (".parquet", ".jsonl"):
        found = next(read_rows(path), None)
        return Glance(path) if found is None or isinstance(found[1], DataError) else Glance(path, found[1])
    try:
        with open_input(path) as stream:
            head = stream.read(HEAD).decode("utf-8-sig", errors="replace").lstrip()
    except OSError:
        return Glance(path)  # the reader will report why
    if path.suffix == ".tsv":
        line = head.partition("\n")[0].rstrip("\r")
        return Glance(path, header=frozenset(next(csv.reader([line], delimiter="\t"), [])))
    if head.startswith("{"):
        return Glance(path, head=head)
    try:
        row: Any = json.JSONDecoder().raw_decode(head[1:].lstrip())[0]
    except (ValueError, RecursionError):
        return Glance(path)  # not an array, or the first row is longer than the part examined
    return Glance(path, row) if isinstance(row, dict) else Glance(path)

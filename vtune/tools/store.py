"""Many small records in one file, found by number: only what is needed is read."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np

from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.files.reading import open_input, read_text


class RecordWriter:
    """Appends byte strings to one file, and records where each one ends; a context manager.

    Args:
        folder: Where the two files go.
        name: Base name of the files: NAME.bin and NAME.ends.npy.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._ends: list[np.ndarray[Any, Any]] = []
        self._latest: list[int] = []
        self._end = 0
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        self._file = (self._folder / f"{self._name}.bin").open("wb", buffering=1 << 20)
        return self

    def append(self, record: bytes) -> None:
        """Append a record."""
        assert self._file is not None
        self._file.write(record)
        self._end += len(record)
        self._latest.append(self._end)
        if len(self._latest) == 1 << 16:
            self._pack()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        self._file.close()
        if kind is None:
            self._pack()
            np.save(self._folder / f"{self._name}.ends.npy", np.concatenate(self._ends))

    def _pack(self) -> None:
        self._ends.append(np.array(self._latest, dtype=np.int64))
        self._latest = []


class Records:
    """Reads the files of a `RecordWriter`; any number of threads may read.

    Raises:
        DataError: If the files are missing or incomplete.
    """

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / f"{name}.bin"
        try:
            self._ends = np.load(folder / f"{name}.ends.npy", mmap_mode="r")
            self._file = open_input(path)
        except (OSError, ValueError) as error:
            raise DataError(
                f"not a complete index: {error}", where=str(folder), fix="build it again"
            ) from None
        if len(self) and os.fstat(self._file.fileno()).st_size != self._ends[-1]:
            raise DataError(f"{path} is cut short", fix="build the index again")

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> bytes:
        start = int(self._ends[number - 1]) if number else 0
        return os.pread(self._file.fileno(), int(self._ends[number]) - start, start)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


MANIFEST = "index.json"
"""States what kind of index a folder contains; written last."""


def write_manifest(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the manifest of an index."""
    (folder / MANIFEST).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def read_manifest(folder: Path, *kinds: str) -> dict[str, Any]:
    """The manifest of an index.

    Raises:
        DataError: If the folder contains no index of these kinds.
    """
    fix = "build one: vtune data index CORPUS --out DIR" + (" --pictures" if kinds == ("pictures",) else "")
    try:
        facts = parse_json(read_text(folder / MANIFEST))
    except (OSError, ValueError):
        raise DataError(f"no index in {folder}", fix=fix) from None
    if not isinstance(facts, dict) or facts.get("kind") not in kinds:
        raise DataError(f"the index in {folder} is not one of {kinds[0]}", fix=fix)
    return facts


def check_same_encoder(folder: Path, made: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Check that the encoder that built an index is the one that searches it.

    Args:
        folder: Folder of the index.
        made: The facts of the encoder that built it.
        mine: Those of the encoder that searches.

    Raises:
        DataError: If they differ.
    """
    if made["fingerprint"] != mine["fingerprint"]:
        raise DataError(
            f"{made['model']} embedded its contents, but {mine['model']} is another model: vectors of "
            "two models cannot be compared",
            where=str(folder),
            fix="search with the model that built it, or build the index again",
        )

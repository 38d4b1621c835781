"""MMMU and MMMU-Pro as their authors publish them: Parquet, one folder per subject or configuration.

A row has up to seven pictures in columns of their own, and its options as a Python list. It is read as a row
of VLMEvalKit's TSV is (`harness.py`), so both give the same questions; only the ids differ.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from vtune.data.shards import ShardRow, Table, scan_shards
from vtune.data.tsv import TsvRow
from vtune.errors import DataError

_PICTURES = tuple(f"image_{number}" for number in range(1, 8))
_ASKED = {"id": "id", "question": "question", "options": "options", "answer": "answer"}
_SUBJECT = {"subject": "subject"}

_VALIDATION = Table(
    split="validation", columns=_ASKED, may={one: one for one in _PICTURES}, pictures=_PICTURES
)


class Published(NamedTuple):
    """A benchmark's name and its table."""

    source: str
    table: Table


MMMU = Published("MMMU", _VALIDATION)
"""In the folder of each of 30 subjects, which an id names; lmms-lab's copy has all in one file."""
MMMU_PRO = Published(
    "MMMU_Pro_10c",
    replace(_VALIDATION, split="test", config="standard (10 options)", columns=_ASKED | _SUBJECT),
)
MMMU_PRO_VISION = Published(
    "MMMU_Pro_V",
    Table(
        split="test",
        config="vision",
        columns={"id": "id", "options": "options", "answer": "answer"} | _SUBJECT,
        pictures=("image",),
    ),
)


def is_published(path: Path) -> bool:
    """Whether a path is a file or folder of Parquet, not a TSV."""
    return path.suffix.lower() == ".parquet" or (path.is_dir() and not any(path.glob("*.tsv")))


def scan_published(path: Path, table: Table) -> Iterator[TsvRow | DataError]:
    """One entry per row of a folder or file: the row as if from a TSV, or what is wrong with it.

    Args:
        path: The data set's folder, one of a configuration or a subject, or a file.
        table: Which of the tables above it is.

    Raises:
        DataError: As `scan_shards` does.
    """
    known: set[str] = set()
    for row in scan_shards(path, replace(table, config="") if path.name == table.config else table):
        try:
            yield row if isinstance(row, DataError) else _as_tsv(row, known)
        except DataError as error:
            yield error


def _as_tsv(row: ShardRow, known: set[str]) -> TsvRow:
    """The row with its id as index; `known` holds the ids so far.

    Raises:
        DataError: If the id is missing or repeated, a picture precedes a missing one, or there is none.
    """
    index = row.text("id")
    if not index or index in known:
        raise DataError(f"id {index!r} is empty or appears twice", where=row.place, fix="download it again")
    known.add(index)
    _check_pictures(row.values, len(row.pictures), row.place)
    texts = {name: row.text(name) for name in row.values if name not in _PICTURES and name != "id"}
    return TsvRow(row.place, {"index": index, "id": index, **texts}, row.pictures)


def _check_pictures(values: Mapping[str, object], count: int, place: str) -> None:
    """Check that a row has pictures, and that the column `image_n` holds the n-th.

    Raises:
        DataError: If not: `<image 2>` would be another picture.
    """
    there = [values.get(name) is not None for name in _PICTURES if name in values]
    if not count or there[:count] != [True] * min(count, len(there)):
        raise DataError("a picture is missing", where=place, fix="download it again")

"""Samples in and out of Parquet files."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vtune.errors import DataError
from vtune.schema.fields import Row
from vtune.schema.parquet.tables import at_row, rows_with, write_table
from vtune.schema.sample import Sample
from vtune.schema.sample_row import SAMPLE_COLUMNS, SAMPLE_NEEDS, sample_from_row, sample_to_row

_EMPTY = {"bytes": b"", "path": None}


def read_samples(path: Path, *, default_verifier: str | None = None) -> Iterator[Sample]:
    """The samples of a file, in file order.

    Args:
        path: A Parquet file in the layout of architecture.md, or of verl, DeepEyes, CodeV or V-Triune.
        default_verifier: Judges the rows that name no verifier.

    Raises:
        DataError: At the first row that is not a valid sample, naming file, row (from 0) and column; if
            the file is missing or is not Parquet; if an id occurs twice.
    """
    for sample in scan_samples(path, default_verifier=default_verifier):
        if isinstance(sample, DataError):
            raise sample
        yield sample


def scan_samples(
    path: Path, *, default_verifier: str | None = None, pictures: bool = True
) -> Iterator[Sample | DataError]:
    """One entry per row: the sample, or the error that `read_samples` would raise there.

    Args:
        path: As in `read_samples`.
        default_verifier: As in `read_samples`.
        pictures: Whether to read the pictures, which are nearly all of a file; if not, samples have empty
            ones in their place.

    Raises:
        DataError: If the file itself cannot be read.
    """
    first_rows: dict[str, int] = {}
    for number, row in rows_with(path, SAMPLE_NEEDS, without=None if pictures else "images.bytes"):
        if not pictures:
            row = row | {"images": [_EMPTY] * _count(row.get("images"))}
        try:
            sample = sample_from_row(row, place=f"{path.stem}/{number}", default_verifier=default_verifier)
        except DataError as error:
            yield at_row(path, number, error)
            continue
        first = first_rows.setdefault(sample.id, number)
        yield sample if first == number else at_row(path, number, _twice(sample.id, first))


def _count(images: Any) -> int:
    """Number of pictures in a value of the column `images`: a list, a single one or none."""
    return len(images) if isinstance(images, list) else int(images is not None)


def write_samples(path: Path, samples: Iterable[Sample]) -> int:
    """Write a sample file and return the number of rows.

    Raises:
        DataError: If a sample cannot be stored, or an id occurs twice. Then there is no new file.
    """
    return write_table(path, SAMPLE_COLUMNS, _sample_rows(path, samples))


def _sample_rows(path: Path, samples: Iterable[Sample]) -> Iterator[Row]:
    first_rows: dict[str, int] = {}
    for number, sample in enumerate(samples):
        first = first_rows.setdefault(sample.id, number)
        if first != number:
            raise at_row(path, number, _twice(sample.id, first))
        try:
            yield sample_to_row(sample)
        except DataError as error:
            raise at_row(path, number, error) from None


def _twice(identity: str, first: int) -> DataError:
    return DataError(
        f"id {identity!r} appears twice, first in row {first}",
        where="column `extra_info.id`",
        fix="ids must be unique across all files: drop or rename one of the two",
    )

"""Reads the texts of single columns, whatever else a file holds."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from vtune.errors import DataError
from vtune.schema.parquet.tables import columns, scan_columns


def data_sources(path: Path) -> Iterator[str | None]:
    """The `data_source` of every row.

    Raises:
        DataError: If the file is missing or damaged, lacks that column, or contains other values there.
    """
    for batch in scan_columns(path, ["data_source"]):
        yield from _texts(path, "data_source", batch.column(0))


def distinct(path: Path, column: str) -> set[str]:
    """The distinct texts in a column; empty if the file has no such column.

    Raises:
        DataError: If the file is missing or damaged, or contains other values there.
    """
    found: set[str] = set()
    if column in columns(path):
        for batch in scan_columns(path, [column]):
            found.update(text for text in _texts(path, column, batch.column(0)) if text)
    return found


def tally(path: Path, names: Sequence[str]) -> Counter[tuple[str | None, ...]]:
    """Number of rows per combination of texts in some columns.

    Args:
        path: The file.
        names: Names of the columns; one that the file does not have counts as null in every row.

    Raises:
        DataError: If the file is missing or damaged, or contains other values there.
    """
    found: Counter[tuple[str | None, ...]] = Counter()
    for batch in scan_columns(path, (), names):
        held = {name: _texts(path, name, batch.column(name)) for name in batch.schema.names}
        empty = [None] * batch.num_rows
        found.update(zip(*(held.get(name, empty) for name in names), strict=True))
    return found


def _texts(path: Path, name: str, values: pa.Array) -> list[str | None]:
    try:
        texts: list[str | None] = values.cast(pa.string()).to_pylist()
    except pa.ArrowException as error:
        what = f"column `{name}` does not hold texts: {error}"
        raise DataError(what, where=str(path), fix="make the file again") from None
    return texts

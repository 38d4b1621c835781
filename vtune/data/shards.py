"""Benchmarks as Hugging Face publishes them: Parquet shards, one question per row, pictures in structs.

A snapshot of a data set is a folder of files named by their split, `testmini-00000-of-00002-725687bf.parquet`
or `testmini.parquet`, or of one folder per split. A benchmark's reader declares a `Table`: its split and
which column means what.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtune.data.formats.values import encoded_pictures
from vtune.errors import DataError
from vtune.schema.parquet import columns as columns_of
from vtune.schema.parquet import scan_rows

_SHARD = re.compile(r"(?P<split>.+?)-(?P<number>\d{5})-of-(?P<count>\d{5})(?:-[0-9a-f]+)?")
"""The stem of a shard as `datasets` names it; older versions add a hash at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Where a benchmark's rows are in a snapshot, and what their columns mean."""

    split: str
    """Split in its file names."""
    config: str = ""
    """Folder of the configuration's files, if a snapshot has several configurations; empty: any."""
    columns: Mapping[str, str]
    """Our name -> column that every file must have."""
    may: Mapping[str, str] = field(default_factory=dict)
    """Our name -> column that a file may lack; its values are null then."""
    pictures: tuple[str, ...] = ()
    """Picture columns, {bytes, path} or lists of them, in order. Nulls are left out."""


@dataclass(frozen=True, slots=True)
class ShardRow:
    """One row."""

    place: str
    """File and row, counted from 0, for errors."""
    values: Mapping[str, Any]
    """Our name -> value as Arrow returns it."""
    pictures: tuple[bytes, ...]
    """Encoded pictures."""

    @property
    def picture(self) -> bytes:
        """The first picture.

        Raises:
            DataError: If there is none.
        """
        if not self.pictures:
            raise DataError("the row has no picture", where=self.place, fix="download the file again")
        return self.pictures[0]

    def text(self, name: str) -> str:
        """A value that must be a text; null becomes empty.

        Raises:
            DataError: If it is something else.
        """
        value = self.values[name]
        if value is not None and not isinstance(value, str):
            raise DataError(
                f"`{name}` is {type(value).__name__}, not a text",
                where=self.place,
                fix="is it the data set that the suite names?",
            )
        return value or ""


def scan_shards(path: Path, table: Table) -> Iterator[ShardRow | DataError]:
    """One entry per row of a split, file by file: the row, or an error if a picture of it is missing.

    Only a few rows are in memory at a time.

    Args:
        path: Folder of a snapshot, or one file of it.
        table: What to read.

    Raises:
        DataError: If the split or a shard is missing, or a file is damaged or lacks a column.
    """
    shards = files_of(path, table)
    known = [_known(file, table) for file in shards]
    for file, wanted in zip(shards, known, strict=True):
        for number, row in scan_rows(file, wanted):
            place = f"{file}, row {number}"
            try:
                yield _row(row, table, place, file.parent)
            except DataError as error:
                yield DataError(error.what, where=f"{place}, {error.where}", fix=error.fix)


def files_of(path: Path, table: Table) -> list[Path]:
    """The files of a split in order; a path to a file gives just that file.

    Raises:
        DataError: If there are none, or a shard is missing.
    """
    if path.is_file():
        return [path]
    every = sorted(file for file in path.rglob("*.parquet") if file.is_file())
    found = [file for file in every if _belongs(file.relative_to(path), table)]
    if not found:
        what = f"no Parquet file of the split `{table.split}`"
        named = ", ".join(file.relative_to(path).as_posix() for file in every[:5]) or "none at all"
        raise DataError(
            what + (f" of `{table.config}`" if table.config else ""),
            where=str(path),
            fix=f"it has {named}; download the data set, or name one of its files",
        )
    for file in found:
        _check_whole(file)
    return found


def _belongs(file: Path, table: Table) -> bool:
    """Whether a file, by its path in the snapshot, belongs to the split."""
    if table.config and table.config not in file.parts[:-1]:
        return False
    shard = _SHARD.fullmatch(file.stem)
    name = shard["split"] if shard else file.stem
    return name == table.split or (file.stem.isdecimal() and table.split in file.parts[:-1])


def _check_whole(file: Path) -> None:
    """Check that all shards exist; their names say how many there are.

    Raises:
        DataError: If one is missing.
    """
    shard = _SHARD.fullmatch(file.stem)
    for number in range(int(shard["count"]) if shard else 0):
        wanted = f"{shard['split']}-{number:05d}-of-{shard['count']}" if shard else ""
        if not any(file.parent.glob(f"{wanted}*.parquet")):
            raise DataError(
                f"shard {wanted} is missing", where=str(file.parent), fix="download the data set again"
            )


def _known(file: Path, table: Table) -> list[str]:
    """The columns to read from a file.

    Raises:
        DataError: If it lacks a required one.
    """
    there = columns_of(file)
    needed = [*table.columns.values(), *table.pictures]
    if missing := [name for name in needed if name not in there]:
        raise DataError(
            f"the file has no column {', '.join(f'`{name}`' for name in missing)}",
            where=str(file),
            fix=f"it has {', '.join(there)}; is it the data set that the suite names?",
        )
    return list(dict.fromkeys([*needed, *(name for name in table.may.values() if name in there)]))


def _row(row: Mapping[str, Any], table: Table, place: str, folder: Path) -> ShardRow:
    named = {**table.columns, **table.may}
    values = {name: row.get(column) for name, column in named.items()}
    pictures = tuple(
        picture.data or b""
        for column in table.pictures
        for picture in encoded_pictures(column, row[column], folder)
    )
    return ShardRow(place, values, pictures)

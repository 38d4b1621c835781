"""The one way in and out of sample and trajectory files.

Files are read and written in small pieces, so memory does not grow with a file; of what was read, only
the ids are kept, to find those that come twice. A file appears under its name when it is complete.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vtune.errors import DataError
from vtune.files.reading import check_input, open_input, read_bytes
from vtune.files.writing import whole_file, write_whole
from vtune.schema.fields import Row
from vtune.schema.message import Picture
from vtune.schema.sample import Sample
from vtune.schema.sample_row import SAMPLE_COLUMNS, SAMPLE_NEEDS, sample_from_row, sample_to_row
from vtune.schema.trajectory import Trajectory
from vtune.schema.trajectory_row import (
    LATE_COLUMNS,
    TRAJECTORY_COLUMNS,
    trajectory_from_row,
    trajectory_to_row,
)

GROUP_ROWS = 512
"""A row group holds at most so many rows (ours) …"""
GROUP_BYTES = 32 * 2**20
"""… and is closed once its pictures and tokens reach this size (ours)."""
LARGE_INPUT = 2**20
"""Bytes of a picture above which rollouts share it (ours): one file is easier to carry about."""
INPUTS = "inputs"
"""Folder of a run with the pictures that its rollouts share."""
_READ_ROWS = 16
"""At most so many rows are read at once, and fewer where they are large (ours)."""
_SCAN_BYTES = 2**20
"""Of rows that are read at a time where they are small (ours)."""
_LONGEST_BYTES = 256 * 2**20
"""Of values that rows share and that are read at once (ours)."""
_BOMB_BYTES = 128 * 2**20
"""Bytes of a column of a row group that may be packed as tightly as it likes (ours)."""
_BOMB_RATIO = 200
"""How much larger than packed a larger one may be, ours: pictures and texts have 1 to 20."""
_TOKEN_BYTES = 9
"""On disk: an int32, a float32 and a mask bit a token."""

_DAMAGED = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)
"""What Arrow raises where a file is damaged, and where a value is nothing that Python has, e.g. a date."""


def read_samples(path: Path, *, default_verifier: str | None = None) -> Iterator[Sample]:
    """The samples of a file, in file order.

    Args:
        path: A Parquet file in the layout of architecture.md, or of verl, DeepEyes, CodeV or V-Triune.
        default_verifier: Judges the rows that name no verifier.

    Raises:
        DataError: At the first row that is no valid sample, naming file, row (from 0) and column; if
            the file is missing or is not Parquet; if an id comes twice.
    """
    for sample in scan_samples(path, default_verifier=default_verifier):
        if isinstance(sample, DataError):
            raise sample
        yield sample


def scan_samples(path: Path, *, default_verifier: str | None = None) -> Iterator[Sample | DataError]:
    """One entry a row: the sample, or the error that `read_samples` would raise there.

    Raises:
        DataError: If the file itself cannot be read.
    """
    first_rows: dict[str, int] = {}
    for number, row in _rows(path, SAMPLE_NEEDS):
        try:
            sample = sample_from_row(row, place=f"{path.stem}/{number}", default_verifier=default_verifier)
        except DataError as error:
            yield at_row(path, number, error)
            continue
        first = first_rows.setdefault(sample.id, number)
        yield sample if first == number else at_row(path, number, _twice(sample.id, first))


def write_samples(path: Path, samples: Iterable[Sample]) -> int:
    """Write a sample file and return how many rows it holds.

    Raises:
        DataError: If a sample cannot be stored, or an id comes twice. Then there is no new file.
    """
    return _write(path, SAMPLE_COLUMNS, _sample_rows(path, samples))


def read_trajectories(path: Path) -> Iterator[Trajectory]:
    """The trajectories of a file, in file order.

    Raises:
        DataError: At the first row that is no valid trajectory, naming file, row (from 0) and column; if
            the file is missing or is not Parquet.
    """
    for trajectory in scan_trajectories(path):
        if isinstance(trajectory, DataError):
            raise trajectory
        yield trajectory


def scan_trajectories(path: Path) -> Iterator[Trajectory | DataError]:
    """One entry a row: the trajectory, or the error that `read_trajectories` would raise there.

    Raises:
        DataError: If the file itself cannot be read.
    """
    for number, row in _rows(path, [name for name in TRAJECTORY_COLUMNS.names if name not in LATE_COLUMNS]):
        try:
            yield with_inputs(trajectory_from_row(row), path.parent)
        except DataError as error:
            yield at_row(path, number, error)


def write_trajectories(path: Path, trajectories: Iterable[Trajectory], *, run: Path | None = None) -> int:
    """Write a trajectory file and return how many rows it holds.

    Args:
        path: The file.
        trajectories: Its rows.
        run: Folder of the run: large pictures that questions came with are put into its `inputs`, each once,
            whatever the number of rollouts, and rows name them by their paths. None: all are in the rows.

    Raises:
        DataError: If a trajectory contradicts itself. Then there is no new file.
    """
    if run is not None:
        trajectories = (_named_inputs(trajectory, run / INPUTS, path.parent) for trajectory in trajectories)
    return _write(path, TRAJECTORY_COLUMNS, _trajectory_rows(path, trajectories))


def with_inputs(trajectory: Trajectory, base: Path) -> Trajectory:
    """The trajectory with the bytes of the pictures that it shares with others of its run.

    Raises:
        DataError: If one is no longer there.
    """
    if not any(map(_is_shared, trajectory.images)):
        return trajectory
    try:
        images = tuple(
            replace(picture, data=load_picture(picture, base)) if _is_shared(picture) else picture
            for picture in trajectory.images
        )
    except DataError as error:
        fix = f"keep the run's folder {INPUTS} where it was beside its trajectories, also in a copy"
        raise DataError(error.what, where=error.where, fix=fix) from None
    return replace(trajectory, images=images)


def _is_shared(picture: Picture) -> bool:
    return picture.data is None and picture.path is not None and Path(picture.path).parent.name == INPUTS


def _named_inputs(trajectory: Trajectory, inputs: Path, base: Path) -> Trajectory:
    """The trajectory with its large inputs in a folder, and their paths from `base`."""
    images = []
    for picture in trajectory.images:
        if picture.origin == "input" and picture.data is not None and len(picture.data) > LARGE_INPUT:
            stored = inputs / hashlib.sha256(picture.data).hexdigest()[:32]
            if not stored.exists():
                write_whole(stored, picture.data)
            path = os.path.relpath(stored, base)
            picture = replace(picture, data=None, path=path)
        images.append(picture)
    return replace(trajectory, images=tuple(images))


def scan_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """(row number from 0, row) of any Parquet file, as Arrow gives them.

    Raises:
        DataError: If the file is missing, is not Parquet, or is damaged.
    """
    return _rows(path, ())


def write_rows(path: Path, schema: pa.Schema, rows: Iterable[Row]) -> int:
    """Write rows of any schema, in pieces as all files are written, and return how many there are.

    Raises:
        DataError: If a value does not fit its column. Then there is no new file.
    """
    try:
        return _write(path, schema, rows)
    except pa.ArrowException as error:
        raise DataError(f"a value does not fit its column: {error}", where=str(path)) from None


def group_sizes(path: Path) -> list[int]:
    """Rows of each row group, from the file's footer.

    Raises:
        DataError: If the file is missing or is not Parquet.
    """
    with _opened(path) as file:
        return [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)]


def read_group(path: Path, index: int) -> list[Row]:
    """The rows of one row group, as they are on disk; `vtune.schema.store` turns them into records.

    Raises:
        DataError: If the file is missing or damaged.
    """
    with _opened(path) as file:
        try:
            return [dict(row) for row in file.read_row_group(index).to_pylist()]
        except _DAMAGED as error:
            raise DataError(
                f"row group {index} is damaged: {error}", where=str(path), fix="make or download it again"
            ) from None


def scan_groups(path: Path, indices: Sequence[int]) -> Iterator[Row]:
    """The rows of some row groups one after the other, however large these are; else as `read_group`.

    Raises:
        DataError: If the file is missing or damaged.
    """
    with _opened(path) as file:
        # Small rows are read many at a time, which is several times as fast.
        portion = max(
            _rows_at_once(file), min(_rows_within(file, _SCAN_BYTES), GROUP_ROWS, _rows_of_longest(file))
        )
        try:
            for batch in file.iter_batches(batch_size=portion, row_groups=list(indices)):
                yield from batch.to_pylist()
        except _DAMAGED as error:
            raise DataError(
                f"row groups {indices[0]} to {indices[-1]} are damaged: {error}",
                where=str(path),
                fix="make or download it again",
            ) from None


def data_sources(path: Path) -> Iterator[str | None]:
    """The `data_source` of every row; no other column is read.

    Raises:
        DataError: If the file is missing, damaged or without that column.
    """
    with _opened(path) as file:
        try:
            for batch in file.iter_batches(columns=["data_source"]):
                yield from batch.column(0).to_pylist()
        except (*_DAMAGED, IndexError) as error:
            raise DataError(
                f"column `data_source` cannot be read: {error}", where=str(path), fix="make the file again"
            ) from None


def distinct(path: Path, column: str) -> set[str]:
    """The texts that stand in a column, none where the file has no such column; no other column is read.

    Raises:
        DataError: If the file is missing, damaged, or holds something else in that column.
    """
    found: set[str] = set()
    with _opened(path) as file:
        if column not in file.schema_arrow.names:
            return found
        try:
            for batch in file.iter_batches(columns=[column]):
                found.update(value for value in batch.column(0).unique().to_pylist() if value)
        except _DAMAGED as error:
            raise DataError(
                f"column `{column}` cannot be read: {error}", where=str(path), fix="make the file again"
            ) from None
    return found


def count_rows(path: Path) -> int:
    """Rows of a file, from its footer.

    Raises:
        DataError: If the file is missing or is not Parquet.
    """
    with _opened(path) as file:
        return int(file.metadata.num_rows)


def columns(path: Path) -> dict[str, str]:
    """Column -> Arrow type, as the file has them.

    Raises:
        DataError: If the file is missing or is not Parquet.
    """
    with _opened(path) as file:
        return {field.name: str(field.type) for field in file.schema_arrow}


def fingerprint(path: Path) -> str:
    """SHA-256 of the file's bytes, in hexadecimal: two files with one fingerprint hold the same rows.

    Raises:
        DataError: If there is no such file.
    """
    try:
        with open_input(path) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from None


def load_picture(picture: Picture, base: Path) -> bytes:
    """The encoded bytes of a picture.

    Args:
        picture: Bytes, or a path; where it has both, the bytes count.
        base: The folder of the Parquet file: relative paths start there.

    Raises:
        DataError: If the picture's file cannot be read.
    """
    if picture.data is not None:
        return picture.data
    if picture.path is None:
        raise DataError("a picture has neither bytes nor a path", fix="give one of them")
    path = base / picture.path
    try:
        return read_bytes(path)
    except OSError as error:
        raise DataError(
            f"no picture at {path}: {error.strerror}",
            fix="paths are relative to the folder of the Parquet file",
        ) from None


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        check_input(path)
        # Mapped and not buffered ahead: else a whole column of a row group is read at once, and
        # published files have row groups of gigabytes.
        file = pq.ParquetFile(str(path), memory_map=True, pre_buffer=False)
    except OSError as error:
        raise _unreadable(path, error) from None
    except pa.ArrowException as error:
        raise DataError(
            f"not a Parquet file, or not a whole one: {error}",
            where=str(path),
            fix="import JSON lines with `vtune data import samples`"
            if path.suffix in (".jsonl", ".json")
            else "make or download it again; `vtune data validate` checks a file",
        ) from None
    with file:
        _check_sizes(path, file)
        yield file


def _check_sizes(path: Path, file: pq.ParquetFile) -> None:
    """See that no column unpacks to what memory cannot hold."""
    for index in range(file.num_row_groups):
        group = file.metadata.row_group(index)
        for number in range(group.num_columns):
            column = group.column(number)
            size, packed = column.total_uncompressed_size, max(column.total_compressed_size, 1)
            if size > _BOMB_BYTES and size > _BOMB_RATIO * packed:
                raise DataError(
                    f"column `{column.path_in_schema}` unpacks {packed} bytes to {size}",
                    where=f"{path}, row group {index}",
                    fix="no data are like that: make or download the file again",
                )


def _likely(names: Sequence[str]) -> str:
    """What kind of file has these columns."""
    if {"sample_id", "messages"} <= set(names):
        return "it is a file of traces or trajectories; give a file of samples"
    if {"prompt", "reward_model"} <= set(names):
        return "it is a file of samples; give a file of traces or trajectories"
    return "is it the right kind of file?"


def _rows(path: Path, needs: Iterable[str]) -> Iterator[tuple[int, Row]]:
    """(row number from 0, row) of a file that has the columns in `needs`."""
    with _opened(path) as file:
        names = file.schema_arrow.names
        for name in needs:
            if name not in names:
                raise DataError(
                    f"the file has no column `{name}`",
                    where=str(path),
                    fix=f"its columns are {', '.join(names)}; {_likely(names)}",
                )
        number = 0
        try:
            for batch in file.iter_batches(batch_size=_rows_at_once(file)):
                for row in batch.to_pylist():
                    yield number, row
                    number += 1
        except _DAMAGED as error:
            raise DataError(
                f"the file breaks off or is damaged: {error}",
                where=f"{path}, row {number} or soon after",
                fix="make or download it again",
            ) from None


def _rows_at_once(file: pq.ParquetFile) -> int:
    """So many rows that they do not exceed a row group of ours, pictures of 8000 px included."""
    return max(1, min(_READ_ROWS, _rows_within(file, GROUP_BYTES), _rows_of_longest(file)))


def _rows_of_longest(file: pq.ParquetFile) -> int:
    """How many of the longest value in a file fit in memory: all rows may share one of a dictionary."""
    longest = 1
    for index in range(file.num_row_groups):
        group = file.metadata.row_group(index)
        for number in range(group.num_columns):
            column = group.column(number)
            if column.has_dictionary_page:
                packed = column.data_page_offset - (column.dictionary_page_offset or 0)
                grows = column.total_uncompressed_size / max(column.total_compressed_size, 1)
                longest = max(longest, int(packed * grows))
    return _LONGEST_BYTES // longest


def _rows_within(file: pq.ParquetFile, size: int) -> int:
    """How many rows of a file, of its mean size, make so many bytes."""
    metadata = file.metadata
    whole: int = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
    fit: int = size * metadata.num_rows // max(whole, 1)
    return fit


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


def _trajectory_rows(path: Path, trajectories: Iterable[Trajectory]) -> Iterator[Row]:
    for number, trajectory in enumerate(trajectories):
        try:
            yield trajectory_to_row(trajectory)
        except DataError as error:
            raise at_row(path, number, error) from None


def _write(path: Path, schema: pa.Schema, rows: Iterable[Row]) -> int:
    written = 0
    with (
        whole_file(path) as partial,
        pq.ParquetWriter(str(partial), schema, compression="zstd") as writer,
    ):
        for group in _groups(rows, path.parent):
            writer.write_table(pa.Table.from_pylist(group, schema=schema))
            written += len(group)
            del group  # before the next one grows
    return written


def _groups(rows: Iterable[Row], base: Path) -> Iterator[list[Row]]:
    """Rows in the portions that become row groups, and that readers hold whole."""
    group: list[Row] = []
    size = 0
    for row in rows:
        group.append(row)
        size += sum(_weight(image) for image in row.get("images", row.get("image")) or ())
        if "token_ids" in row:
            size += _TOKEN_BYTES * len(row["token_ids"])
            # Who reads a trajectory has its pictures, wherever they lie.
            named = [base / image["path"] for image in row["images"] if image["bytes"] is None]
            size += sum(path.stat().st_size for path in named if path.is_file())
        if len(group) == GROUP_ROWS or size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _weight(image: Any) -> int:
    """Bytes of a picture: a struct, or base64."""
    return len(image) if isinstance(image, str) else len(image["bytes"] or b"")


def at_row(path: Path, number: int, error: DataError) -> DataError:
    """An error about a row, with its file and its number in its place."""
    place = f"{path}, row {number}"
    return DataError(error.what, where=f"{place}, {error.where}" if error.where else place, fix=error.fix)


def _twice(identity: str, first: int) -> DataError:
    return DataError(
        f"id {identity!r} comes twice, first in row {first}",
        where="column `extra_info.id`",
        fix="ids are unique in all data: drop one row or rename it",
    )


def _unreadable(path: Path, error: OSError) -> DataError:
    reason = error.strerror or str(error)
    return DataError(f"cannot read {path}: {reason}", fix="check the path; `vtune data make` makes data")

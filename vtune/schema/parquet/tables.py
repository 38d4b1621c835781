"""Rows of any Parquet file, in and out: the only file that imports `pyarrow.parquet`.

Files are read and written in small pieces, so memory does not grow with their size. A file appears under its
name only when it is complete.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vtune.errors import DataError
from vtune.files.reading import check_input, open_input
from vtune.files.writing import atomic_file
from vtune.schema.fields import Row
from vtune.schema.parquet.groups import GROUP_BYTES, GROUP_ROWS, row_groups
from vtune.schema.parquet.json_columns import json_reader

MAGIC = b"PAR1"
"""First bytes of a Parquet file."""
_NAMED = 5
"""Limit on the files of a folder that a message names (ours)."""
_READ_ROWS = 16
"""Limit on the rows read at once; fewer if they are large (ours)."""
_SCAN_BYTES = 2**20
"""Limit on the bytes of small rows read at once (ours)."""
_LONGEST_BYTES = 256 * 2**20
"""Limit on the bytes of values that are shared by rows and read at once (ours)."""
_COLUMN_ROWS = 256
"""Rows of single columns read at once (ours)."""
_DIGEST_BYTES = 2**20
"""Bytes read at a time to compute a file's digest (ours)."""
_BOMB_BYTES = 128 * 2**20
"""Up to this many bytes, a column of a row group may have any compression ratio (ours)."""
_BOMB_RATIO = 200
"""Limit on the compression ratio of larger columns; ours: pictures and texts have 1 to 20."""
_DAMAGED = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)
"""What Arrow raises for a damaged file, or for a value that has no counterpart in Python, e.g. some dates."""


def scan_rows(path: Path, only: Sequence[str] | None = None) -> Iterator[tuple[int, Row]]:
    """(row number from 0, row) of any Parquet file, as given by Arrow; JSON columns are decoded.

    Args:
        path: The file.
        only: Columns to read, which must exist; None: all of them.

    Raises:
        DataError: If the file is missing, is not Parquet, or is damaged.
    """
    return rows_with(path, only or (), only)


def write_rows(
    path: Path, schema: pa.Schema, rows: Iterable[Row], *, check: Callable[[Path], None] | None = None
) -> int:
    """Write rows of any schema, in pieces as for all files, and return their number.

    Args:
        path: The file.
        schema: Schema of the columns.
        rows: Rows of the file.
        check: Called with the complete file before it gets its name; if it raises, there is no new file.

    Raises:
        DataError: If a value does not fit its column. Then there is no new file.
    """
    try:
        return write_table(path, schema, rows, check=check)
    except pa.ArrowException as error:
        raise DataError(f"a value does not fit its column: {error}", where=str(path)) from None


def group_sizes(path: Path) -> list[int]:
    """Number of rows in each row group, from the file's footer.

    Raises:
        DataError: If the file is missing or is not Parquet.
    """
    with _opened(path) as file:
        return [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)]


def read_group(path: Path, index: int) -> list[Row]:
    """The rows of one row group, as stored; `vtune.schema.store` turns them into records.

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


def read_row(path: Path, number: int) -> Row:
    """One row, by its number from 0; of the others, only those in its row group are read.

    Raises:
        DataError: If the file is missing or damaged, or has no such row.
    """
    with _opened(path) as file:
        first = 0
        for index in range(file.num_row_groups):
            size = file.metadata.row_group(index).num_rows
            if first <= number < first + size:
                try:
                    return dict(file.read_row_group(index).slice(number - first, 1).to_pylist()[0])
                except _DAMAGED as error:
                    raise DataError(
                        f"row {number} is damaged: {error}", where=str(path), fix="make or download it again"
                    ) from None
            first += size
    raise DataError(f"there is no row {number}; it has {first}", where=str(path), fix="look for another row")


def scan_columns(path: Path, wanted: Sequence[str], late: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
    """Some columns of a file, a few rows at a time; other columns, above all pictures, are not read.

    Args:
        path: The file.
        wanted: Columns, or parts of nested ones (`images.list.element.origin`).
        late: Columns that a file may lack; then its batches lack them, too.

    Raises:
        DataError: If the file is missing or damaged, or lacks one of the wanted columns.
    """
    with _opened(path) as file:
        names = file.schema_arrow.names
        for name in (column.partition(".")[0] for column in wanted):
            if name not in names:
                raise DataError(f"the file has no column `{name}`", where=str(path), fix=_likely(names))
        columns = [*wanted, *(name for name in late if name in names)]
        try:
            yield from file.iter_batches(batch_size=_COLUMN_ROWS, columns=columns)
        except _DAMAGED as error:
            raise DataError(
                f"the file breaks off or is damaged: {error}",
                where=str(path),
                fix="make or download it again",
            ) from None


def scan_groups(path: Path, indices: Sequence[int]) -> Iterator[Row]:
    """The rows of several row groups in order, however large these are; otherwise like `read_group`.

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


def count_rows(path: Path) -> int:
    """Number of rows of a file, from its footer.

    Raises:
        DataError: If the file is missing or is not Parquet.
    """
    with _opened(path) as file:
        return int(file.metadata.num_rows)


def columns(path: Path) -> dict[str, str]:
    """Column -> Arrow type, as in the file.

    Raises:
        DataError: If the file is missing or is not Parquet.
    """
    with _opened(path) as file:
        return {field.name: str(field.type) for field in file.schema_arrow}


def fingerprint(path: Path, advance: Callable[[int], None] = lambda size: None) -> str:
    """SHA-256 of the file's bytes, in hexadecimal: two files with the same fingerprint have the same rows.

    Args:
        path: The file.
        advance: Called with the number of bytes read since the last call.

    Raises:
        DataError: If there is no such file.
    """
    try:
        with open_input(path) as stream:
            digest = hashlib.sha256()
            while part := stream.read(_DIGEST_BYTES):
                digest.update(part)
                advance(len(part))
            return digest.hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from None


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        check_input(path)
        # Memory-mapped without pre-buffering: otherwise a whole column of a row group is read at once, and
        # published files have row groups of gigabytes.
        file = pq.ParquetFile(str(path), memory_map=True, pre_buffer=False)
    except OSError as error:
        raise _unreadable(path, error) from None
    except pa.ArrowException as error:
        raise _not_parquet(path, error) from None
    with file:
        _check_sizes(path, file)
        yield file


def _check_sizes(path: Path, file: pq.ParquetFile) -> None:
    """Check that no column decompresses to more than memory can hold."""
    for index in range(file.num_row_groups):
        group = file.metadata.row_group(index)
        for number in range(group.num_columns):
            column = group.column(number)
            size, packed = column.total_uncompressed_size, max(column.total_compressed_size, 1)
            if size > _BOMB_BYTES and size > _BOMB_RATIO * packed:
                raise DataError(
                    f"column `{column.path_in_schema}` would expand from {packed} bytes to {size} bytes",
                    where=f"{path}, row group {index}",
                    fix="no real data compresses so well: make or download the file again",
                )


def _likely(names: Sequence[str]) -> str:
    """The kind of file that has these columns."""
    if {"sample_id", "messages"} <= set(names):
        return "it is a file of traces or trajectories; give a file of samples"
    if {"prompt", "reward_model"} <= set(names):
        return "it is a file of samples; give a file of traces or trajectories"
    return "is it the right kind of file?"


def rows_with(
    path: Path, needs: Iterable[str], only: Sequence[str] | None = None, *, without: str | None = None
) -> Iterator[tuple[int, Row]]:
    """(row number from 0, row) of a file that has the columns in `needs`.

    Args:
        path: The file.
        needs: Columns that it must have.
        only: Columns to read; None: all.
        without: `COLUMN.MEMBER` of a list of structs, e.g. `images.bytes`, which is not read if the structs
            have other members; everything else is.
    """
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
        read = json_reader(
            file.schema_arrow if only is None else pa.schema(map(file.schema_arrow.field, only))
        )
        leaves = None if without is None else _leaves_without(file, without)
        at_once = _rows_at_once(file) if leaves is None else min(_COLUMN_ROWS, _rows_of_longest(file))
        wanted = only if leaves is None else leaves
        try:
            for batch in file.iter_batches(batch_size=max(1, at_once), columns=wanted):
                for row in batch.to_pylist():
                    yield number, row if read is None else read(row)
                    number += 1
        except _DAMAGED as error:
            raise DataError(
                f"the file breaks off or is damaged: {error}",
                where=f"{path}, row {number} or soon after",
                fix="make or download it again",
            ) from None


def _leaves_without(file: pq.ParquetFile, member: str) -> list[str] | None:
    """The leaves of all columns except one; None if it is absent, or its column has no other."""
    column, _, name = member.partition(".")
    paths = [file.schema.column(index).path for index in range(len(file.schema))]
    left = [path for path in paths if not (path.startswith(f"{column}.") and path.endswith(f".{name}"))]
    others = any(path.startswith(f"{column}.") for path in left)
    return left if others and len(left) < len(paths) else None


def _rows_at_once(file: pq.ParquetFile) -> int:
    """Number of rows that do not exceed a row group of ours, even with pictures of 8000 px."""
    return max(1, min(_READ_ROWS, _rows_within(file, GROUP_BYTES), _rows_of_longest(file)))


def _rows_of_longest(file: pq.ParquetFile) -> int:
    """How many copies of a file's longest value fit in memory: all rows may share one dictionary entry."""
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
    """How many rows of average size make `size` bytes."""
    metadata = file.metadata
    total: int = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
    fit: int = size * metadata.num_rows // max(total, 1)
    return fit


def write_table(
    path: Path,
    schema: pa.Schema,
    rows: Iterable[Row],
    *,
    check: Callable[[Path], None] | None = None,
    option: str | None = "--out",
) -> int:
    """`write_rows` of rows that are known to fit `schema`; `option` as in `atomic_file`."""
    written = 0
    with atomic_file(path, option=option) as partial:
        with pq.ParquetWriter(str(partial), schema, compression="zstd") as writer:
            for group in row_groups(rows, path.parent):
                writer.write_table(pa.Table.from_pylist(group, schema=schema))
                written += len(group)
                del group  # free it before the next one grows
        if check is not None:
            check(partial)
    return written


def at_row(path: Path, number: int, error: DataError) -> DataError:
    """An error about a row, with file and row number as its place."""
    place = f"{path}, row {number}"
    return DataError(error.what, where=f"{place}, {error.where}" if error.where else place, fix=error.fix)


def _not_parquet(path: Path, error: pa.ArrowException) -> DataError:
    with open_input(path) as stream:
        begun = stream.read(len(MAGIC)) == MAGIC
    if begun:
        what, fix = "the Parquet file is cut short or damaged", "copy, download or make it again"
    elif path.suffix in (".jsonl", ".json"):
        what, fix = "not a Parquet file", "import JSON lines with `vtune data import samples`"
    else:
        what, fix = "not a Parquet file", "give a Parquet file; `vtune data import` makes one of other files"
    return DataError(f"{what}: {_first_sentence(error)}", where=str(path), fix=fix)


def _unreadable(path: Path, error: OSError) -> DataError:
    if path.is_dir():
        names = sorted(file.name for file in path.glob("*.parquet"))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return DataError(
            f"cannot read {path}: it is a folder",
            fix=f"name files of it: {', '.join(names[:_NAMED])}{more}"
            if names
            else "give Parquet files: there are none in it",
        )
    if error.strerror:
        what = f"cannot read {path}: {error.strerror}"
        return DataError(what, fix="check the path; `vtune data make` makes data")
    # From the Parquet library, in its words: the path is right, but the content is not.
    return DataError(f"cannot read {path}: {_first_sentence(error)}", fix="make or download it again")


def _first_sentence(error: Exception) -> str:
    return " ".join(str(error).split()).partition(". ")[0].removesuffix(".")

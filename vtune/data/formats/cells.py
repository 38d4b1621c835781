"""Rows of text files as written: CSV and TSV, whose cells are text, and JSON.

Libraries guess types from how cells look: 007 becomes 7, a 17-digit id becomes a different one, and a date
becomes a timestamp, before the caller can intervene.
"""

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO

from vtune.data.formats.source import DOCUMENT_PARTS, as_row, json_lines, list_alone
from vtune.errors import DataError
from vtune.files.json_text import parse_rows
from vtune.files.reading import MAX_DOCUMENT, MAX_LINE, open_input, read_lines
from vtune.schema.fields import Row

SEPARATORS = {".csv": ",", ".tsv": "\t", ".json": None, ".jsonl": None, ".ndjson": None}
"""Cell separator by file ending; None: JSON lines, or a JSON array of rows."""
FIRST = 100
"""JSON rows scanned for columns before the first row is yielded (ours): rows may omit empty columns."""


class Cells(dict[str, Any]):
    """A row of a table: every cell is text, even a number; an empty one is None."""


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file of rows."""

    address: str
    """A path, or a URL that `fsspec` opens."""
    separator: str | None
    """Separator between cells; None: JSON."""


Located = tuple[str, int | None, Any]
"""File path or address, row number in it (None: the whole file), and the row or a DataError."""


def text_file(path: Path) -> TextFile | None:
    """The file, if its name marks it as a text file."""
    ending = path.suffix.lower()
    return TextFile(str(path), SEPARATORS[ending]) if ending in SEPARATORS else None


def text_rows(files: Iterable[TextFile]) -> Iterator[Located]:
    """Every row of the files; an unreadable row yields an error in its place, and reading goes on."""
    for file in files:
        try:
            with _open(file.address) as stream:
                read = _json(stream) if file.separator is None else _table(stream, file.separator)
                for number, row in enumerate(read):
                    here = f"{file.address}, row {number}"
                    if isinstance(row, DataError):
                        row = DataError(row.what, where=here, fix=row.fix)
                    yield file.address, number, row
        except OSError as error:
            unread = DataError(f"cannot read {file.address}: {error.strerror or error}", fix="check the file")
            yield file.address, None, unread
        except DataError as error:
            yield file.address, None, DataError(error.what, where=file.address, fix=error.fix)


def columns(rows: Iterable[Row | DataError], wanted: Sequence[str]) -> list[str]:
    """The columns of the rows, scanned until the wanted ones appear; empty if no row can be read.

    Args:
        rows: The files' rows, from the first one on.
        wanted: Columns that may be missing in the first rows, but not in all.
    """
    there: dict[str, None] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, DataError):
            there |= dict.fromkeys(row)
        # The header of a table names all columns at once.
        if isinstance(row, Cells) or (number >= FIRST and there.keys() >= set(wanted)):
            break
    return list(there)


def heading(file: TextFile) -> list[str]:
    """The columns in a table's header, even if no row follows; empty if it cannot be read, and for JSON."""
    if file.separator is None:
        return []
    with suppress(OSError, csv.Error, UnicodeDecodeError), _open(file.address) as stream:
        return _header(next((one for one in csv.reader(_Lines(stream), delimiter=file.separator) if one), []))
    return []


def other_separator(file: TextFile, there: Sequence[str]) -> str:
    """The likely separator of a table that was read as a single column; empty if there is no candidate."""
    if file.separator is None or len(there) != 1:
        return ""
    marks = (mark for mark in (";", "\t", "|", ",") if mark != file.separator)
    return next((mark for mark in marks if mark in there[0]), "")


def saved_otherwise(files: Sequence[TextFile], there: Sequence[str]) -> str:
    """How to save files whose columns are not as expected; empty if there is no hint.

    Args:
        files: At least one.
        there: The columns that were found.
    """
    if separator := other_separator(files[0], there):
        mark = "tabs" if separator == "\t" else f"`{separator}`"
        return f"its cells are separated by {mark}: save it as .csv with commas, or as .tsv with tabs"
    return (
        list_alone(next((row for _, _, row in text_rows(files)), None)) if files[0].separator is None else ""
    )


def _open(address: str) -> BinaryIO:
    if "://" not in address:
        return open_input(Path(address))
    import fsspec  # type: ignore[import-untyped]

    opened: BinaryIO = fsspec.open(address, "rb").open()
    return opened


def _json(stream: BinaryIO) -> Iterator[Row | DataError]:
    """Rows of JSON lines, or of one array; an object that spans many lines is one row."""
    begin = b""
    while not begin.strip(b"\xef\xbb\xbf \t\r\n") and (more := stream.read(1)):
        begin += more
    second = stream.read(2) if begin.endswith(b"{") else b""
    spread = second.lstrip(b"\r").startswith(b"\n")
    if not begin.endswith(b"[") and not spread:
        stream.seek(0)
        yield from (row for _, row in json_lines(stream))
        return
    text = begin + second + stream.read(MAX_DOCUMENT + 1)
    try:
        if len(text) > MAX_DOCUMENT:
            raise ValueError(f"it is larger than {MAX_DOCUMENT >> 20} MiB")
        rows = parse_rows(text.removeprefix(b"\xef\xbb\xbf"), parts=DOCUMENT_PARTS)
    except ValueError as error:
        yield DataError(f"not JSON: {error}", fix="write [{…}, …], or JSON lines")
        return
    yield from map(as_row, [rows] if spread else rows)


def _table(stream: BinaryIO, separator: str) -> Iterator[Row | DataError]:
    """Rows below a header. After text that is not a table, the rest of the file is not read."""
    # The csv module's limit is process-wide, and its default of 128 kB is less than a picture in base64.
    csv.field_size_limit(sys.maxsize)
    lines = _Lines(stream)
    records = csv.reader(lines, delimiter=separator)
    header: list[str] | None = None
    try:
        for record in records:
            if lines.ended:  # in a record: csv would accept the text so far as a cell
                raise csv.Error("a quote is not closed")
            lines.next_record()
            if not record:
                continue  # a blank line
            if header is None:
                header = _header(record)
            else:
                yield _row(header, record, separator)
    except (csv.Error, UnicodeDecodeError) as error:
        yield DataError(
            f"not a table in UTF-8: {error}, in the row that begins in line {lines.begin}",
            fix="save it in UTF-8, with quotes around texts that hold quotes or line ends",
        )


class _Lines:
    """The lines of a stream as text, with the current position of the record reader."""

    def __init__(self, stream: BinaryIO) -> None:
        self._lines = read_lines(stream)
        self._number = 0
        self._length = 0
        self.begin = 1
        """Line, from 1, on which the current record began."""
        self.ended = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines, None)
        if line is None:
            self.ended = True
            raise StopIteration
        # Tables from Windows begin with a byte order mark.
        text = line.decode("utf-8" if self._number else "utf-8-sig")
        self._number += 1
        self._length += len(line)
        if self._length > MAX_LINE:
            raise csv.Error(f"a row is longer than {MAX_LINE >> 20} MiB; is a quote not closed?")
        return text

    def next_record(self) -> None:
        """Called when the reader reaches the end of a record."""
        self.begin, self._length = self._number + 1, 0


def _header(record: Sequence[str]) -> list[str]:
    """Column names, made unique as pandas does."""
    names: list[str] = []
    for place, cell in enumerate(record):
        name = cell or f"Unnamed: {place}"
        others = (f"{name}.{number}" for number in count(1))
        names.append(next(one for one in chain([name], others) if one not in names))
    return names


def _row(header: Sequence[str], record: Sequence[str], separator: str) -> Cells | DataError:
    """The row of a record. Programs omit empty cells at the end, or add some."""
    if any(record[len(header) :]):
        what = "tabs" if separator == "\t" else f"{separator!r}"
        return DataError(
            f"{len(record)} cells for {len(header)} columns", fix=f"put quotes around texts that hold {what}"
        )
    cells = [cell or None for cell in record[: len(header)]]
    return Cells(zip(header, cells + [None] * (len(header) - len(cells)), strict=True))

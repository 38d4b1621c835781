"""Reads the rows of published dataset files: Parquet, JSON lines, JSON."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from json import detect_encoding
from pathlib import Path
from typing import Any, BinaryIO

from vtune.errors import DataError
from vtune.files.json_text import KeyTwice, kind_of_value, parse_json, parse_row, parse_rows
from vtune.files.reading import MAX_DOCUMENT, open_input, read_lines, read_text
from vtune.schema.fields import Row
from vtune.schema.parquet import scan_rows

ENDINGS = (".parquet", ".jsonl", ".json")
UTF8 = "save the file as UTF-8"
DOCUMENT_PARTS = 10_000_000
"""Limit on lists and objects in a JSON file read as a whole (ours): COCO's largest has 4 million."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row is."""

    file: Path
    row: int | None
    """From 0, not counting blank lines; None for the file as a whole."""
    name: str
    """Path of the file relative to the folder that was given, without its ending, e.g. `train/0001`."""
    spot: tuple[Path, int | None] | None = None
    """The file and the row in it (None: all of it), if `file` is a folder whose rows are counted through."""

    @property
    def file_and_row(self) -> tuple[Path, int | None]:
        """The file and row where a user can find it."""
        return self.spot or (self.file, self.row)

    @property
    def where(self) -> str:
        """The file and row as text, for messages."""
        file, row = self.file_and_row
        return str(file) if row is None else f"{file}, row {row}"

    @property
    def id(self) -> str:
        """An id that stays the same as long as the file does."""
        return f"{self.name}/{self.row}"


Raw = tuple[Place, Row | DataError]
"""A row as on disk, or why it cannot be read."""


def files(path: Path, endings: tuple[str, ...] = ENDINGS) -> list[tuple[Path, str]]:
    """The data files that a path refers to, each with its name for `Place`; for a folder, all files below it.

    Raises:
        DataError: If there are none.
    """
    if path.is_file():
        return [(path, path.stem)]
    found = sorted(file for file in path.rglob("*") if file.suffix in endings and file.is_file())
    if not found:
        what = f"no {', '.join(endings)} file in {path}" if path.is_dir() else f"no file or folder at {path}"
        raise DataError(what, fix="give a file of the data set, or the folder that holds them")
    return [(file, file.relative_to(path).with_suffix("").as_posix()) for file in found]


def read_rows(path: Path) -> Iterator[Raw]:
    """Every row of a file or folder, one at a time. Only a JSON array is read as a whole.

    A damaged file yields one entry without a row, and reading goes on with the next file.

    Raises:
        DataError: If there is no file.
    """
    for file, name in files(path):
        try:
            for number, row in _rows(file):
                yield Place(file, number, name), row
        except DataError as error:
            yield Place(file, None, name), error


def read_json(file: Path, parse: Callable[..., Any] = parse_json) -> Any:
    """The content of a JSON file.

    Args:
        file: The file.
        parse: `parse_json`, or `parse_rows` if it holds rows.

    Raises:
        DataError: If it cannot be read, or is not JSON.
    """
    try:
        return parse(read_text(file, limit=MAX_DOCUMENT), parts=DOCUMENT_PARTS)
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}", fix="is it the right file?") from None
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8: {error.reason}", where=str(file), fix=UTF8) from None
    except ValueError as error:
        raise DataError(f"not JSON: {error}", where=str(file), fix="download the file again") from None


def _rows(file: Path) -> Iterator[tuple[int, Row | DataError]]:
    if file.suffix == ".parquet":
        yield from scan_rows(file)
    elif file.suffix == ".jsonl":
        yield from _lines(file)
    elif file.suffix == ".json":
        content = read_json(file, parse_rows)
        if not isinstance(content, list):
            fix = list_alone(content) or "write [{…}, …], or JSON lines"
            raise DataError("not a JSON array of rows", where=str(file), fix=fix)
        for number, row in enumerate(content):
            yield number, as_row(row)
    else:
        packed = "decompress it if it is compressed (.gz, .zst); else give the files as they are published"
        table = "`vtune data import hf` reads tables, with a map of their columns (--columns)"
        raise DataError(
            f"its name does not end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}",
            where=str(file),
            fix=table if file.suffix in (".csv", ".tsv") else packed,
        )


def _lines(file: Path) -> Iterator[tuple[int, Row | DataError]]:
    try:
        with open_input(file) as stream:
            yield from json_lines(stream)
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}", fix="is it the right file?") from None


def json_lines(stream: BinaryIO) -> Iterator[tuple[int, Row | DataError]]:
    """(number, row) of JSON lines, or why the line has no row; blank lines are skipped and not counted.

    Raises:
        OSError: If the stream cannot be read, or a line is too long.
        DataError: If it begins in UTF-16 or UTF-32, which have different line endings.
    """
    number = 0
    for place, line in enumerate(read_lines(stream)):
        if not place:
            _check_encoding(line)
        if line.strip():
            try:
                # Files from Windows may begin with a byte order mark. Lone surrogates are reported later,
                # with their column.
                text = line.removeprefix(b"\xef\xbb\xbf").strip().decode("utf-8", "surrogatepass")
                yield number, as_row(parse_row(text))
            except KeyTwice as error:
                yield number, as_row(error)
            except UnicodeDecodeError as error:
                yield number, DataError(f"the line is not UTF-8: {error.reason}", fix=UTF8)
            except ValueError as error:
                yield number, DataError(f"the line is not JSON: {error}", fix="correct or drop the line")
            number += 1


def _check_encoding(begin: bytes) -> None:
    """Check that a text that begins like this may be UTF-8.

    Raises:
        DataError: If it has the byte order mark of another encoding, or every other byte of its first
            characters is 0.
    """
    found = detect_encoding(begin)
    if begin[:4].strip(b"\0") and not found.startswith("utf-8"):
        raise DataError(f"the file is not UTF-8 but {found[:6].upper()}", fix=UTF8)


def list_alone(content: Any) -> str:
    """What to do with an object that has exactly one list of objects, its rows; empty for anything else."""
    lists = content.items() if isinstance(content, dict) else ()
    held = [key for key, one in lists if isinstance(one, list) and one and isinstance(one[0], dict)]
    return f"its rows are under `{held[0]}`: write that list alone into a file" if len(held) == 1 else ""


def as_row(row: object) -> Row | DataError:
    """A JSON value as a row, or why it cannot be one."""
    if isinstance(row, dict):
        return row
    if isinstance(row, KeyTwice):
        return DataError(str(row), fix="remove one, or rename it")
    return DataError(f"a row is {kind_of_value(row)}, not an object", fix='write {"column": value, …}')

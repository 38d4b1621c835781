"""TSV tables: rows of text, and benchmarks in VLMEvalKit's layout, with a base64 picture per row."""

import base64
import csv
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from string import ascii_uppercase
from typing import BinaryIO

from vtune.data.options import multiple_choice
from vtune.errors import DataError
from vtune.files.reading import open_input, read_lines, why_unread
from vtune.schema.fields import Row
from vtune.schema.message import Picture
from vtune.schema.sample import Sample
from vtune.verifiers import choice
from vtune.verifiers.choice import lettered

LONGEST_INDEX = 64
"""VLMEvalKit's limit in characters: an `image` no longer than this is the `index` of the picture's row."""

_QUOTING = (
    "; in a table of your own, put a text that begins with a quote in quotes, and double those within: "
    '"""Hi"" he said"'
)
"""The fix if quotes are not used as in a table."""


@dataclass(frozen=True, slots=True)
class TsvRow:
    """One row."""

    place: str
    """File and row, counted from 0, for errors."""
    values: Mapping[str, str]
    """Column -> text, without `image`."""
    pictures: tuple[bytes, ...]
    """The encoded pictures; few layouts have more than one."""

    @property
    def picture(self) -> bytes:
        """The first picture."""
        return self.pictures[0]

    @property
    def choices(self) -> tuple[str, ...]:
        """The options, as `columns_of_options` finds them.

        Raises:
            DataError: If there are fewer than two.
        """
        found = self.columns_of_options()
        if len(lettered(found)) < 2:
            raise DataError(
                "fewer than two of the columns A, B … hold an option", where=self.place, fix="fill them in"
            )
        return found

    def columns_of_options(self) -> tuple[str, ...]:
        """Columns A, B, C … up to the last that holds an option; earlier columns without one are empty texts.

        As in VLMEvalKit, an empty column or one that pandas wrote as `nan` is not an option, and the other
        options keep their letters.
        """
        found = [self.values.get(letter, "").strip() for letter in ascii_uppercase]
        found = ["" if option.lower() == "nan" else option for option in found]
        while found and not found[-1]:
            found.pop()
        return tuple(found)

    @property
    def answer(self) -> str:
        """The letter of the right option.

        Raises:
            DataError: If it is not one of them.
        """
        return self.letter(self.choices)

    def letter(self, choices: Sequence[str]) -> str:
        """The column `answer`: the letter of the right option among `choices`.

        Raises:
            DataError: If it is not one of their letters.
        """
        letter = self.values["answer"].strip()
        if letter not in lettered(choices):
            raise DataError(
                f"the answer {letter!r} is not the letter of an option",
                where=self.place,
                fix=f"write one of {', '.join(lettered(choices))}",
            )
        return letter


def scan_tsv(path: Path, needs: Collection[str]) -> Iterator[TsvRow | DataError]:
    """One entry per row: the row, or what is wrong with it; only one row with its picture is in memory.

    A row is wrong if it does not have one value per column, its `index` is repeated, or its picture is
    missing or not base64.

    Args:
        path: A TSV file with a header that includes `index` and `image`.
        needs: Further columns that it must have.

    Raises:
        DataError: If the file is missing, lacks a column, or stops being valid TSV.
    """
    try:
        with open_input(path) as stream, open_input(path) as again:
            yield from _rows(path, stream, again, {"index", "image", *needs})
    except OSError as error:
        held = sorted(file.name for file in path.glob("*.tsv"))  # of a folder
        fix = f"name a file in it: {', '.join(held)}" if held else "is it the right file?"
        raise DataError(f"cannot read {path}: {error.strerror}", fix=fix) from None


def read_table(path: Path, one_of: Collection[str]) -> Iterator[tuple[int, Row | DataError]]:
    """(number, row) of a table of texts whose first line names the columns, or why it cannot be read.

    Args:
        path: A TSV file.
        one_of: Columns of which it must have at least one.

    Raises:
        DataError: If the file is missing, its first line names none of these columns or names one twice, or
            it stops being valid TSV.
    """
    try:
        with open_input(path) as stream:
            records = _records(path, stream)
            _, header = next(records, (0, []))
            _check_header(path, header, one_of)
            for number, (_, record) in enumerate(records):
                even = len(record) == len(header)
                yield number, dict(zip(header, record, strict=True)) if even else _uneven(record, header)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", fix="is it the right file?") from None


def _check_header(path: Path, header: list[str], one_of: Collection[str]) -> None:
    if not set(one_of) & set(header):
        # A table without a header (MS MARCO's `collection.tsv`) would lose its first row.
        raise DataError(
            f"the first line names no column {' or '.join(f'`{name}`' for name in one_of)}",
            where=str(path),
            fix="the first line names the columns: write one above the rows, "
            f"such as id<TAB>{next(iter(one_of))}; "
            f"it has {', '.join(name[:40] for name in header[:40]) or 'nothing'}",
        )
    if doubled := [name for name in dict.fromkeys(header) if header.count(name) > 1]:
        raise DataError(
            f"the first line names {', '.join(f'`{name}`' for name in doubled)} more than once",
            where=str(path),
            fix="give each column its own name",
        )


def _uneven(record: list[str], header: list[str], place: str = "") -> DataError:
    return DataError(
        f"{len(record)} value(s) for {len(header)} columns",
        where=place,
        fix="download the file again; a text that holds tabs needs quotes around it",
    )


def _rows(
    path: Path, stream: BinaryIO, again: BinaryIO, needs: Collection[str]
) -> Iterator[TsvRow | DataError]:
    records = _records(path, stream)
    _, header = next(records, (0, []))
    if missing := sorted(set(needs) - set(header)):
        raise DataError(
            f"the file has no column {', '.join(f'`{name}`' for name in missing)}",
            where=str(path),
            fix=f"it has {', '.join(name[:40] for name in header[:40]) or 'none'}; is it the right file?",
        )
    starts: dict[str, int] = {}
    for number, (start, record) in enumerate(records):
        place = f"{path}, row {number}"
        try:
            yield _row(path, again, header, record, start, starts, place)
        except DataError as error:
            yield error


def _row(
    path: Path,
    again: BinaryIO,
    header: list[str],
    record: list[str],
    start: int,
    starts: dict[str, int],
    place: str,
) -> TsvRow:
    """The row of a record; adds it to `starts`, which maps each index to the start of its record."""
    if len(record) != len(header):
        raise _uneven(record, header, place)
    values = dict(zip(header, record, strict=True))
    index, image = values["index"], values.pop("image")
    if index in starts:
        raise DataError(f"index {index!r} appears twice", where=place, fix="number the rows")
    starts[index] = start
    if len(image) <= LONGEST_INDEX:
        image = _elsewhere(path, again, header, starts.get(image), image, place)
    return TsvRow(place, values, tuple(_decoded(one, place) for one in _several(image, place)))


def _records(path: Path, stream: BinaryIO) -> Iterator[tuple[int, list[str]]]:
    """(offset of the first byte, values) of each record from the stream's current position."""
    # The csv module's limit is process-wide, and its default of 128 kB is less than a picture.
    csv.field_size_limit(sys.maxsize)
    start = position = stream.tell()
    number = 0

    def lines() -> Iterator[str]:
        nonlocal position, number
        for line in read_lines(stream):
            encoding = "utf-8" if position else "utf-8-sig"  # Windows: a byte order mark first
            position += len(line)
            number += 1
            yield line.decode(encoding)

    left = lines()
    try:
        for line in left:
            if '"' in line:
                record = next(csv.reader(chain([line], left), delimiter="\t", strict=True))
            else:
                # For a picture, the csv module would take eight times the memory and time.
                record = line.rstrip("\r\n").split("\t")
            if record != [""]:
                yield start, record
            start = position
    except (csv.Error, UnicodeDecodeError) as error:
        why, fix = (why_unread(error), "") if isinstance(error, UnicodeDecodeError) else (error, _QUOTING)
        raise DataError(
            f"not a TSV file: {why}", where=f"{path}, line {number}", fix=f"download it again{fix}"
        ) from None


def _elsewhere(
    path: Path, again: BinaryIO, header: list[str], start: int | None, index: str, place: str
) -> str:
    """The picture of another, earlier row."""
    if start is None:
        raise DataError(
            f"`image` is {index!r}: neither a picture in base64 nor the index of an earlier row",
            where=place,
            fix="download the file again, or put a picture in base64 into `image`",
        )
    again.seek(start)
    _, record = next(_records(path, again))
    image = dict(zip(header, record, strict=True))["image"]
    if len(image) <= LONGEST_INDEX:
        raise DataError(
            f"the row refers to the picture of row {index!r}, which has none",
            where=place,
            fix="refer to a row that has one",
        )
    return image


def _several(image: str, place: str) -> list[str]:
    """The pictures of a cell: one, or a Python list of them."""
    if not image.startswith("["):
        return [image]
    found = [part.strip().strip("'\"") for part in image.strip().strip("[]").split(",")]
    if not all(found):
        raise DataError("`image` is not a list of pictures", where=place, fix="download it again")
    return found


def _decoded(image: str, place: str) -> bytes:
    try:
        return base64.b64decode(image, validate=True)
    except ValueError as error:  # binascii.Error is a ValueError, as is a non-ASCII letter
        raise DataError(f"`image` is not base64: {error}", where=place, fix="download it again") from None


def question_of(row: TsvRow, source: str, categories: Collection[str]) -> Sample:
    """The visual-search question of a row, without tools; `extra` keeps its index and categories.

    Raises:
        DataError: If its category is not one of `categories`, or it has no options or no answer.
    """
    choices = row.choices
    category = row.values["category"]
    if category not in categories:
        raise DataError(
            f"unknown category {category!r}", where=row.place, fix=f"known: {', '.join(categories)}"
        )
    kept = ("index", "category", "cycle_category")
    return Sample(
        id=f"{source}/{row.values['index']}",
        source=source,
        prompt=multiple_choice(row.values["question"], choices),
        images=(Picture(data=row.picture),),
        ability="visual_search",
        ground_truth=row.answer,
        answer=choices[ord(row.answer) - ord("A")],
        verifier=choice.NAME,
        choices=choices,
        extra={name: row.values[name] for name in kept if name in row.values},
    )

"""A custom data format that can also be written: riddles with a picture each, as JSON lines."""

import base64
from collections.abc import Iterator
from pathlib import Path

from vtune.data.formats.building import Found, Options, each
from vtune.data.formats.source import read_rows
from vtune.data.formats.specimens import Specimen, coded, json_lines
from vtune.data.formats.table import FORMATS, Format, Writer
from vtune.errors import DataError
from vtune.schema.difference import difference
from vtune.schema.fields import Fields, Row
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Sample


def read(path: Path, options: Options) -> Iterator[Found]:
    """One entry per line."""
    return each(read_rows(path), lambda row, place: card(row))


def card(row: Row) -> Sample:
    """The sample of a line; a missing or invalid column is an error."""
    columns = Fields(row)
    try:
        picture = base64.b64decode(columns.text("picture"), validate=True)
    except ValueError:
        raise DataError("`picture` is not base64", fix="encode the file's bytes") from None
    return Sample(
        id=columns.text("id"),
        source="cards",
        prompt=(Message("user", f"{IMAGE}\n{columns.text('riddle')}", (0,)),),
        images=(Picture(data=picture),),
        ground_truth=columns.text("answer"),
        verifier="exact",
    )


def to_row(sample: Sample, number: int) -> Row:
    """The line of a sample, if it can hold all of the sample."""
    picture = base64.b64encode(b"".join(picture.data or b"" for picture in sample.images)).decode()
    row = {"id": sample.id, "riddle": sample.question, "answer": sample.ground_truth, "picture": picture}
    if lost := difference(sample, card(row)):
        raise DataError(f"a card cannot hold all of it: {lost}", fix="leave it out")
    return row


def specimen(folder: Path) -> Specimen:
    """Two cards."""
    riddles = {"Which colour?": "grey", "How many signs?": "1"}
    rows = [
        {"id": f"card-{number}", "riddle": riddle, "answer": answer, "picture": coded(number)}
        for number, (riddle, answer) in enumerate(riddles.items())
    ]
    return Specimen(json_lines(folder / "cards.jsonl", rows))


FORMATS.add("cards", Format(read, "riddles on cards", specimen=specimen, writes=Writer(to_row)))

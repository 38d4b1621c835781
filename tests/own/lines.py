"""A custom data format: `picture<TAB>question<TAB>answer` per line."""

from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from vtune.data.formats.building import Found, Options
from vtune.data.formats.source import Place
from vtune.data.formats.specimens import Specimen
from vtune.data.formats.table import FORMATS, Format
from vtune.errors import DataError
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Sample


def read(path: Path, options: Options) -> Iterator[Found]:
    """One entry per line; an error for a line with other columns."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        place = Place(path, number, path.stem)
        columns = line.split("\t")
        if len(columns) != 3:
            yield place, DataError(f"{len(columns)} columns", fix="write picture, question and answer")
            continue
        picture, question, answer = columns
        try:
            data = (path.parent / picture).read_bytes()
        except OSError as error:
            yield place, DataError(f"no picture {picture}: {error.strerror}", fix="add it")
            continue
        yield (
            place,
            Sample(
                id=place.id,
                source="lines",
                prompt=(Message("user", f"{IMAGE}\n{question}"),),
                images=(Picture(data=data),),
                ground_truth=answer,
                verifier=options.verifier or "exact",
            ),
        )


def specimen(folder: Path) -> Specimen:
    """A file of two questions."""
    Image.new("RGB", (56, 56), "red").save(folder / "red.png")
    file = folder / "questions.tsv"
    file.write_text("red.png\tWhich colour?\tred\nred.png\tIs it blue?\tno\n", encoding="utf-8")
    return Specimen(file)


FORMATS.add("lines", Format(read, "a table of picture, question and answer", specimen=specimen))

"""Any dataset that Hugging Face `datasets` loads: a hub name, folder or file, with a column map.

CSV, TSV and JSON are read here, as written: `datasets` guesses types from how cells look. So is local
Parquet: `datasets` stops at the first file with no rows or with other columns than the file before.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from pydantic import BeforeValidator, Field

from vtune.config import load_recipe
from vtune.data.formats.building import Found, Options, each
from vtune.data.formats.cells import (
    SEPARATORS,
    Cells,
    Located,
    TextFile,
    columns,
    heading,
    saved_otherwise,
    text_file,
    text_rows,
)
from vtune.data.formats.judging import known_verifier
from vtune.data.formats.questions import AnswerIs, question_sample
from vtune.data.formats.regions import BoxColumn
from vtune.data.formats.source import Place, Raw
from vtune.data.formats.specimens import Specimen, picture_file
from vtune.data.formats.table import FORMATS, Format
from vtune.data.formats.values import has_objects, json_object, text_of
from vtune.data.offer import offering
from vtune.errors import DataError, RecipeError, nearest
from vtune.schema.fields import Row, wrong
from vtune.schema.parquet import columns as columns_of
from vtune.schema.parquet import scan_rows
from vtune.schema.sample import Sample
from vtune.sections import Strict
from vtune.tools import ToolName


class Column(Strict):
    """A value that each row provides."""

    column: str


class Word(Strict):
    """The same text for every row, even if a column has that name."""

    value: str


Said = str | Column | Word
"""`chart` or `{value: chart}` for every row, or `{column: kind}`."""


def _named(said: Any) -> Any:
    """A bare column name for boxes, expanded to a column with default settings."""
    return {"column": said} if isinstance(said, str) else said


Boxes = Annotated[BoxColumn, BeforeValidator(_named)]
ParmColumn = Annotated[Column | Mapping[str, Any], Field(union_mode="left_to_right")]


PARQUET = ".parquet"
PLACEHOLDERS = ("<ref-object>", "<bbox>")
"""ms-swift's placeholders for the names and boxes in `objects`."""
UNREAD = (
    "decompress it if it is compressed (.gz, .zst); otherwise write Parquet, Arrow, CSV, TSV or JSON lines"
)


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """Files of one split; their columns may differ."""

    paths: Sequence[Path]

    def columns(self) -> list[str]:
        """The columns that any of the files has; a damaged file is reported when its rows are read."""
        there: dict[str, str] = {}
        for path in self.paths:
            with suppress(DataError):
                there |= columns_of(path)
        return list(there)

    def rows(self) -> Iterator[Located]:
        """Every row; a damaged file yields one error in place of its rows, and the next file follows."""
        for path in self.paths:
            try:
                yield from ((str(path), number, row) for number, row in scan_rows(path))
            except DataError as error:
                yield str(path), None, error


class ColumnMap(Strict):
    """Maps columns to their meaning, in YAML. `source`, `question` and `answer` are required."""

    source: Said
    """`data_source`."""
    question: str
    """Column: a text, or turns {role, content}."""
    answer: str
    """Column: a text, a number, an option's index from 0, or a list of correct answers. In a text table
    (CSV), a number beside options is an option's index, and any other cell is the answer as written."""
    images: str | None = None
    """Column: a picture, or a list of them."""
    choices: str | None = None
    """Column: the options."""
    answer_is: AnswerIs | None = None
    """What the answers to questions with options are; None: decided row by row, if there is only one
    possibility."""
    id: str | None = None
    """Column: unique in the dataset; None: the name of the file or split, plus the row number."""
    evidence: Boxes | None = None
    """Column: boxes of the target; a bare column name means xyxy in pixels of the stored picture."""
    ability: Said = ""
    """Task family."""
    verifier: Said | None = None
    """Judges the answer; None, or an empty cell in its column: the verifier that suits the answer."""
    verifier_parm: ParmColumn = Field(default_factory=dict)
    """Options of the verifier for every row; or the column that holds them as a JSON object."""
    tools: tuple[ToolName, ...] | None = None
    """Tools that the model may call, with vtune's prompt (see `vtune.data.offer`); None: no tools, and the
    rows' own prompt."""
    config: str | None = None
    """Configuration of the dataset."""
    split: str = "train"


def read_hub(path: Path, options: Options) -> Iterator[Found]:
    """Samples of a dataset, one entry per row; rows are streamed.

    Args:
        path: A name on the hub (`owner/name`), a folder or a file that `datasets` reads, or a folder that
            it saved.
        options: `columns` is the path of the map.

    Raises:
        DataError: If the data set cannot be opened, or lacks a column of the map.
        RecipeError: If there is no map, or it is invalid.
    """
    if options.columns is None:
        raise RecipeError(
            "the format `hf` needs a map of columns",
            fix="write source, question, answer … and pass --columns",
        )
    if not options.columns.is_file():
        raise RecipeError(f"no column map at {options.columns}", fix="check the path of --columns")
    names = load_recipe(options.columns, ColumnMap)
    if isinstance(names.verifier, str):
        known_verifier(names.verifier)
    return each(_rows(path, names), lambda row, place: mapped_sample(row, place, options, names))


def mapped_sample(row: Row, place: Place, options: Options, names: ColumnMap) -> Sample:
    """The sample of a row, read with the help of a column map.

    Raises:
        DataError: Names the column and the fix.
    """
    said = [names.source, names.ability, names.verifier, names.verifier_parm]
    source = _said(row, names.source)
    if not source:
        raise wrong("source", "the row has no source", "fill the column in, or name one source for all rows")
    # The command line applies to rows without a value of their own, and overrides a constant for all rows.
    verifier = _said(row, names.verifier) if isinstance(names.verifier, Column) else ""
    verifier = verifier or options.verifier or _said(row, names.verifier)
    parm = names.verifier_parm
    if isinstance(parm, Column):
        parm = json_object(parm.column, row.get(parm.column))
    sample = question_sample(
        row,
        place,
        replace(options, verifier=known_verifier(verifier) if verifier else None),
        source=source,
        ability=_said(row, names.ability),
        question=(names.question,),
        answer=(names.answer,),
        images=_given(names.images),
        choices=_given(names.choices),
        answer_is=names.answer_is,
        identity=_given(names.id),
        evidence=names.evidence,
        verifier_parm=parm,
        read=[one.column for one in said if isinstance(one, Column)],
    )
    _check_filled(names.question, row, sample)
    if names.tools is None or options.tools is not None:
        return sample  # or the caller decides
    return offering(sample, names.tools)


def _check_filled(column: str, row: Row, sample: Sample) -> None:
    """Check that a question is not an ms-swift template, to be filled in from `objects`."""
    mark = next((mark for mark in PLACEHOLDERS if mark in sample.question), None)
    if mark is not None and has_objects(row):
        raise wrong(
            column,
            f"{mark} is a placeholder for `objects` and was not filled in",
            "write them into the question, boxes in the coordinates that the model reads, or drop the row",
        )


def _said(row: Row, said: Said | None) -> str:
    if isinstance(said, Column):
        value = row.get(said.column)
        return "" if value is None else text_of(said.column, value).strip()
    return said.value if isinstance(said, Word) else said or ""


def _given(name: str | None) -> tuple[str, ...]:
    return () if name is None else (name,)


def _rows(path: Path, names: ColumnMap) -> Iterator[Raw]:
    # Several files may be given; rows without an id are told apart by the name of their file.
    name = path.stem if path.is_file() else names.split
    try:
        for number, (address, there, row) in enumerate(_chosen(path, names)):
            spot = (Path(address), there) if address and path.exists() else None
            place = Place(path, number, name, spot)
            yield place, row if isinstance(row, DataError | Cells) else dict(row)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        # `datasets` reads Parquet in batches and does not say which row it failed on.
        broken = DataError(f"datasets stopped reading: {error}", fix="fix the file, or make it again")
        yield Place(path, None, name), broken


def _chosen(path: Path, names: ColumnMap) -> Iterable[Located]:
    """The rows, pictures still encoded, of a data set that has the columns of the map.

    Rows that `datasets` reads have no file.
    """
    opened = _opened(path, names)
    if isinstance(opened, ParquetFiles):
        if there := opened.columns():
            _check_columns(path, names, there)
        return opened.rows()
    if isinstance(opened, list):
        # All rows from the start: the first row may lack columns that others have.
        there = columns((row for _, _, row in text_rows(opened)), _wanted(names))
        if there := there or [column for file in opened for column in heading(file)]:
            _check_columns(path, names, there, opened)
        return text_rows(opened)
    # Compressed text has no schema before its rows are read.
    there = opened.column_names or list(next(iter(opened.take(1)), {}))
    _check_columns(path, names, there)
    return (("", None, row) for row in _encoded(opened))


def _wanted(names: ColumnMap) -> list[str]:
    """The columns that a map names."""
    wanted = [names.question, names.answer, names.images, names.choices, names.id]
    wanted.append(names.evidence.column if names.evidence else None)
    said = (names.source, names.ability, names.verifier, names.verifier_parm)
    wanted += [one.column for one in said if isinstance(one, Column)]
    return [column for column in wanted if column is not None]


def _check_columns(path: Path, names: ColumnMap, there: list[str], files: Sequence[TextFile] = ()) -> None:
    """Check that a data set has the columns of the map.

    Args:
        path: Path of the data set.
        names: The map.
        there: The columns that the data set has.
        files: Its files, if they are text.
    """
    for column in _wanted(names):
        if column not in there:
            near, has = nearest(column, there), f"it has {', '.join(there)}"
            if files and (saved := saved_otherwise(files, there)):
                has = saved
            elif near.startswith("did you mean"):
                has = f"{near} {has}"
            raise DataError(f"the data set has no column `{column}`", where=str(path), fix=has)
    for key, word in {"source": names.source, "ability": names.ability, "verifier": names.verifier}.items():
        if isinstance(word, str) and word in there:
            raise RecipeError(
                f"`{key}: {word}` writes the word into every row, but the data set has a column `{word}`",
                fix=f"write `{key}: {{column: {word}}}` to take it from each row, or `{{value: {word}}}`",
            )


def _encoded(opened: Any) -> Iterator[Any]:
    """The rows of a data set, with pictures left undecoded."""
    import datasets
    from datasets.table import CastError

    for column, kind in (opened.features or {}).items():
        if isinstance(kind, datasets.Image):
            opened = opened.cast_column(column, datasets.Image(decode=False))
        elif isinstance(getattr(kind, "feature", None), datasets.Image):
            opened = opened.cast_column(column, datasets.List(datasets.Image(decode=False)))
    try:
        yield from opened
    except CastError as error:
        yield DataError(
            f"datasets stopped reading, and all later rows are missing: {error}",
            fix="its files have different columns: download them, and import the folder",
        )


def _opened(path: Path, names: ColumnMap) -> Any:
    """The rows of one split, streamed; a folder that `save_to_disk` wrote is mapped into memory.

    Text files and local Parquet are returned as files instead.
    """
    if path.is_file() and (file := text_file(path)) is not None:
        return [file]
    if path.is_file() and path.suffix.lower() == PARQUET:
        return ParquetFiles([path])
    import datasets

    try:
        if path.is_dir() and ((path / "state.json").is_file() or (path / "dataset_dict.json").is_file()):
            saved = datasets.load_from_disk(str(path))
            part = saved[names.split] if isinstance(saved, datasets.DatasetDict) else saved
            return part.to_iterable_dataset()
        if path.is_file():
            kind = path.suffix.removeprefix(".")
            # `datasets` would look up an unknown name as a data set on the hub.
            if not kind.isidentifier() or find_spec(f"datasets.packaged_modules.{kind}") is None:
                named = f"a {path.suffix} file" if path.suffix else path.name
                what = f"cannot tell how to read {named}"
                raise DataError(what, where=str(path), fix=UNREAD)
            return datasets.load_dataset(kind, data_files=str(path), split="train", streaming=True)
        builder = datasets.load_dataset_builder(str(path), names.config)
        return _plain_files(builder, names.split) or builder.as_streaming_dataset(split=names.split)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"datasets cannot open it: {error}", where=str(path), fix="check name, config and split"
        ) from None


def _plain_files(builder: Any, split: str) -> list[TextFile] | ParquetFiles | None:
    """The files of a split, if they are read here and their dataset card asks for nothing else.

    Types in the card are ignored here: for text, `datasets` guesses first and converts its guesses; Parquet
    states its own types.
    """
    from datasets.packaged_modules.csv.csv import Csv
    from datasets.packaged_modules.json.json import Json
    from datasets.packaged_modules.parquet.parquet import Parquet

    config = builder.config
    if not isinstance(builder, Csv | Json | Parquet):
        return None
    usual, ours = type(config)(), ("name", "version", "data_dir", "data_files", "description")
    for field in fields(config):
        if field.name not in (*ours, "sep", "delimiter") and getattr(config, field.name) != getattr(
            usual, field.name
        ):
            return None
    files = (config.data_files or {}).get(split, [])
    if isinstance(builder, Parquet):
        here = [Path(file) for file in files if "://" not in file]
        return ParquetFiles(here) if here and len(here) == len(files) else None
    separator = config.sep if isinstance(builder, Csv) else None
    if any(Path(file).suffix.lower() not in SEPARATORS for file in files) or len(separator or ",") != 1:
        return None  # compressed, or separated by a regular expression
    return [TextFile(file, separator) for file in files]


def _mapped(folder: Path) -> Specimen:
    """A user's table, and the map of its columns."""
    rows = ["photo,what,says", f"{picture_file(folder, 0)},Which number does the sign say?,12"]
    rows += [f"{picture_file(folder, 1)},How many signs are there?,3"]
    (folder / "signs.csv").write_text("\n".join([*rows, ""]), encoding="utf-8")
    columns = folder / "columns.yaml"
    columns.write_text("source: {value: signs}\nquestion: what\nanswer: says\nimages: photo\n", "utf-8")
    return Specimen(folder / "signs.csv", columns=columns)


FORMATS.add(
    "hf",
    Format(
        read_hub,
        "any data set of `datasets`, with --columns",
        takes=("images", "verifier", "tools", "columns"),
        specimen=_mapped,
    ),
)

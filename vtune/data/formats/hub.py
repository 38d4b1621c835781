"""Any data set of Hugging Face `datasets`: a hub name, a folder or a file, with a map of its columns."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from vtune.config import Strict, load_recipe
from vtune.data.formats.building import Found, Options, each
from vtune.data.formats.judging import known_verifier
from vtune.data.formats.questions import question_sample
from vtune.data.formats.source import Place, Raw
from vtune.data.offer import offering
from vtune.errors import DataError, RecipeError
from vtune.schema.fields import Row
from vtune.schema.sample import Sample, ToolName


class ColumnMap(Strict):
    """Which column means what, in YAML. `source`, `question` and `answer` must be given."""

    source: str
    """`data_source` of every row."""
    question: str
    """Column: a text, or turns {role, content}."""
    answer: str
    """Column: a text, a number, the number of an option from 0, or a list of answers that are all right."""
    images: str | None = None
    """Column: a picture, or a list of them."""
    choices: str | None = None
    """Column: the options."""
    id: str | None = None
    """Column: unique in the data set; None: the row's number."""
    ability: str = ""
    """Task family of every row."""
    verifier: str | None = None
    """Of every row; None: the one that suits the answer."""
    tools: tuple[ToolName, ...] | None = None
    """What the model may call, and vtune's prompt (see `vtune.data.offer`); None: nothing, and their own."""
    config: str | None = None
    """Configuration of the data set."""
    split: str = "train"


def read_hub(path: Path, options: Options) -> Iterator[Found]:
    """Samples of a data set, one entry a row; rows are streamed.

    Args:
        path: A name on the hub (`owner/name`), a folder or a file that `datasets` reads, or a folder that
            it saved.
        options: `columns` names the map.

    Raises:
        DataError: If the data set cannot be opened, or lacks a column of the map.
        RecipeError: If there is no map, or it is wrong.
    """
    if options.columns is None:
        raise RecipeError(
            "the format `hf` needs a map of columns",
            fix="write source, question, answer … and pass --columns",
        )
    if not options.columns.is_file():
        raise RecipeError(f"no column map at {options.columns}", fix="check the path of --columns")
    names = load_recipe(options.columns, ColumnMap)
    if names.verifier is not None:
        known_verifier(names.verifier)
    said = Options(images=options.images, verifier=options.verifier or names.verifier)

    def given(name: str | None) -> tuple[str, ...]:
        return () if name is None else (name,)

    def mapped(row: Row, place: Place) -> Sample:
        sample = question_sample(
            row,
            place,
            said,
            source=names.source,
            ability=names.ability,
            question=(names.question,),
            answer=(names.answer,),
            images=given(names.images),
            choices=given(names.choices),
            identity=given(names.id),
        )
        if names.tools is None or options.tools is not None:
            return sample  # or the caller has the last word
        return offering(sample, names.tools)

    return each(_rows(path, names), mapped)


def _rows(path: Path, names: ColumnMap) -> Iterator[Raw]:
    try:
        for number, row in enumerate(_chosen(path, names)):
            yield Place(path, number, names.split), dict(row)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        # It reads JSON many rows at a time, and does not say which of them it cannot read.
        told = DataError(f"datasets cannot read on: {error}", fix="mend the file, or make it again")
        yield Place(path, None, names.split), told


def _chosen(path: Path, names: ColumnMap) -> Any:
    """The rows, pictures encoded, of a data set that has the columns of the map."""
    import datasets

    opened = _opened(path, names)
    wanted = [names.question, names.answer, names.images, names.choices, names.id]
    there = opened.column_names or list(
        next(iter(opened.take(1)), {})
    )  # JSON has no schema ahead of its rows
    for column in wanted:
        if column is not None and column not in there:
            raise DataError(
                f"the data set has no column `{column}`", where=str(path), fix=f"it has {', '.join(there)}"
            )
    for column, kind in (opened.features or {}).items():
        if isinstance(kind, datasets.Image):
            opened = opened.cast_column(column, datasets.Image(decode=False))
        elif isinstance(getattr(kind, "feature", None), datasets.Image):
            opened = opened.cast_column(column, datasets.List(datasets.Image(decode=False)))
    return opened


def _opened(path: Path, names: ColumnMap) -> Any:
    """The rows of one split, streamed; a folder that `save_to_disk` wrote is mapped into memory."""
    import datasets

    try:
        if path.is_dir() and ((path / "state.json").is_file() or (path / "dataset_dict.json").is_file()):
            saved = datasets.load_from_disk(str(path))
            part = saved[names.split] if isinstance(saved, datasets.DatasetDict) else saved
            return part.to_iterable_dataset()
        if path.is_file():
            kind = {".jsonl": "json", ".tsv": "csv"}.get(path.suffix, path.suffix.removeprefix("."))
            return datasets.load_dataset(kind, data_files=str(path), split="train", streaming=True)
        return datasets.load_dataset(str(path), names.config, split=names.split, streaming=True)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"datasets cannot open it: {error}", where=str(path), fix="check name, config and split"
        ) from None

"""Rows of a question, pictures and an answer: EasyR1, VisualProbe, ThinkLite, and what a column map says."""

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from vtune.data.formats.building import Found, Options, build_sample, each, judged, others
from vtune.data.formats.source import Place, read_rows
from vtune.data.formats.values import conversation, first, listed_options, needed, pictures, text_of
from vtune.schema.fields import Row, mistyped, wrong
from vtune.schema.sample import Sample

QUESTION = ("problem", "question", "prompt", "query")
ANSWER = ("answer", "ground_truth", "solution", "label")
IMAGES = ("images", "image", "decoded_image")
IDENTITY = ("id", "qid", "doc_id", "question_id")


def read_easyr1(path: Path, options: Options) -> Iterator[Found]:
    """Samples of EasyR1's files: `problem`, `images`, `answer`. VisualProbe's say `solution`."""
    return each(
        read_rows(path), lambda row, place: question_sample(row, place, options, source=_named(row, place))
    )


def read_thinklite(path: Path, options: Options) -> Iterator[Found]:
    """Samples of ThinkLite-VL's files, whose columns have had several names."""
    return each(read_rows(path), lambda row, place: question_sample(row, place, options, source="thinklite"))


def question_sample(
    row: Row,
    place: Place,
    options: Options,
    *,
    source: str,
    ability: str = "",
    question: Sequence[str] = QUESTION,
    answer: Sequence[str] = ANSWER,
    images: Sequence[str] = IMAGES,
    choices: Sequence[str] = ("choices", "options"),
    identity: Sequence[str] = IDENTITY,
    tools: Sequence[str] = (),
) -> Sample:
    """The sample of a row.

    Args:
        row: As it is on disk.
        place: Where it stands.
        options: What the caller says.
        source: `data_source`.
        ability: Task family.
        question: Columns that may hold the question, text or turns.
        answer: Columns that may hold the reference.
        images: Columns that may hold pictures.
        choices: Columns that may hold options. Those that the question does not list are written below it.
        identity: Columns that may hold an id; it is made unique by the source.
        tools: What the model may call.

    Raises:
        DataError: Naming the column and the remedy.
    """
    asked, truth = needed(row, *question), needed(row, *answer)
    shown = pictures(images[0] if images else "images", first(row, *images), options.base(place.file))
    turns = conversation(asked, len(shown))
    user = next((turn for turn in reversed(turns) if turn["role"] == "user"), turns[-1])
    given = _choices(first(row, *choices), choices)
    if given and not listed_options(user["content"]):
        listed = "\n".join(f"{letter}. {text}" for letter, text in zip(ascii_uppercase, given, strict=False))
        user["content"] = f"{user['content']}\n{listed}"
    if given and isinstance(truth, int) and not isinstance(truth, bool) and str(truth) not in given:
        truth = _letter(truth, given, answer[0])
    number = first(row, *identity)
    used = {*question, *answer, *images, *choices, *identity, "data_source", "ability"}
    return build_sample(
        place,
        source=source,
        turns=turns,
        images=shown,
        ability=ability or str(row.get("ability") or ""),
        identity=None if number is None else f"{source}/{text_of(identity[0], number)}",
        tools=tools,
        extra=others(row, *used),
        **judged(user["content"], truth, options, column=answer[0], choices=given or None),
    )


def _named(row: Row, place: Place) -> str:
    value = row.get("data_source")
    return value if isinstance(value, str) and value else place.name.split("/")[0]


def _choices(value: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Options from a list, from {letter: text}, or from the text of either."""
    if isinstance(value, str):
        value = _literal(value, names[0])
    if isinstance(value, Mapping):
        value = [value[key] for key in sorted(value, key=str) if value[key] is not None]
    if value is not None and not isinstance(value, list):
        raise mistyped(names[0] if names else "choices", value, "a list of options")
    return tuple(text_of(names[0], item) for item in value or ())


def _literal(text: str, column: str) -> Any:
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    raise wrong(column, f"no list of options: {text[:60]!r}", 'write ["…", "…"]')


def _letter(number: int, choices: Sequence[str], column: str) -> str:
    if not 0 <= number < min(len(choices), len(ascii_uppercase)):
        raise wrong(column, f"option {number} of {len(choices)}", "count the options from 0")
    return ascii_uppercase[number]

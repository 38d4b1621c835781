"""MathVista, MathVerse and MathVision as their authors publish them: Parquet, one question per row.

A row's query stays as published; a protocol chooses the prompt around it. `extra` keeps what the protocols'
rules need, and under `facets` what the authors split scores by.
"""

import math as numbers
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from vtune.data.formats.values import listed_options
from vtune.data.shards import ShardRow, Table, scan_shards
from vtune.errors import DataError
from vtune.schema.clusters import PROBLEM
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Sample
from vtune.verifiers import choice, exact, math
from vtune.verifiers.latex import is_formula, is_number

MATHVISTA = Table(
    split="testmini",
    columns={
        "id": "pid",
        "question": "question",
        "choices": "choices",
        "answer": "answer",
        "question_type": "question_type",
        "answer_type": "answer_type",
        "metadata": "metadata",
        "query": "query",
    },
    may={"unit": "unit", "precision": "precision"},
    pictures=("decoded_image",),
)
MATHVERSE = Table(
    split="testmini",
    columns={
        "id": "sample_index",
        "version": "problem_version",
        "question": "question",
        "answer": "answer",
        "question_type": "question_type",
        "metadata": "metadata",
        "query_wo": "query_wo",
        "query_cot": "query_cot",
        "question_for_eval": "question_for_eval",
    },
    may={"problem": "problem_index"},
    pictures=("image",),
)
TEXT_ONLY = "text only"
"""MathVerse's sixth version, published in a file of its own: the only one without pictures."""
MATHVISION_COLUMNS = {
    "id": "id",
    "question": "question",
    "options": "options",
    "answer": "answer",
    "level": "level",
    "subject": "subject",
}
MOST_LETTERS = 4
"""Letters that are right together in any order: there are 24 for 4."""
FACETS = ("language", "source", "category", "task", "context", "grade", "skills")
"""Keys of `metadata` by which MathVista's authors split scores, besides `question_type` and `answer_type`."""


def scan_mathvista(path: Path) -> Iterator[Sample | DataError]:
    """MathVista, testmini: options, or a number, or a list of numbers."""
    return _scan(path, MATHVISTA, _mathvista)


def scan_mathverse(path: Path) -> Iterator[Sample | DataError]:
    """MathVerse, testmini: a problem in five versions, from mostly text to all in the picture."""
    return _scan(path, MATHVERSE, _mathverse)


def scan_mathvision(path: Path) -> Iterator[Sample | DataError]:
    """MathVision, test: options, often only in the picture, or an open answer."""
    return _scan(path, _mathvision_table("test"), _mathvision)


def scan_mathvision_mini(path: Path) -> Iterator[Sample | DataError]:
    """MathVision, testmini."""
    return _scan(path, _mathvision_table("testmini"), _mathvision)


def _mathvision_table(split: str) -> Table:
    return Table(split=split, columns=MATHVISION_COLUMNS, pictures=("decoded_image",))


def _scan(path: Path, table: Table, read: Callable[[ShardRow], Sample]) -> Iterator[Sample | DataError]:
    """One entry per row: the sample, or what is wrong with it.

    Raises:
        DataError: As `scan_shards` does.
    """
    for row in scan_shards(path, table):
        try:
            yield row if isinstance(row, DataError) else read(row)
        except DataError as error:
            yield error


def _mathvista(row: ShardRow) -> Sample:
    options = _texts(row, "choices")
    answer = _answer(row)
    about = _about(row)
    kinds = {name: row.text(name) for name in ("question_type", "answer_type")}
    if (kinds["question_type"] == "multi_choice") != bool(options):
        raise DataError(
            f"`question_type` is {kinds['question_type']!r} with {len(options)} option(s)",
            where=row.place,
            fix="download it again",
        )
    if options and answer not in options:
        raise DataError(
            f"the answer {answer!r} is not one of the options", where=row.place, fix="download it again"
        )
    truth = ascii_uppercase[options.index(answer)] if options else answer
    precision = row.values["precision"]
    known = isinstance(precision, int | float) and numbers.isfinite(precision)
    return _sample(
        row,
        source="mathvista",
        text=row.text("query"),
        truth=truth,
        answer=answer,
        options=options,
        category=str(about.get("task") or "all"),
        facets={**kinds, **{name: about[name] for name in FACETS if about.get(name)}},
        question=row.text("question"),
        unit=row.text("unit"),
        answer_type=kinds["answer_type"],
        precision=int(precision) if known else None,
    )


def _mathverse(row: ShardRow) -> Sample:
    answer = _answer(row)
    whole = row.text("question_for_eval")
    asks_letter = row.text("question_type") == "multi-choice"
    listed = listed_options(whole) if asks_letter else ()
    about = _about(row)
    version = row.text("version")
    return _sample(
        row,
        source="mathverse",
        text=row.text("query_wo"),
        truth=answer,
        answer=answer,
        # Some problems show their options only in the picture; others have several right options.
        options=listed if choice.chosen_letter(answer, listed) else (),
        lettered=asks_letter and choice.chosen_letter(answer, ()) is not None,
        aliases=_letters_in_a_row(answer) if asks_letter else (),
        text_only=re.sub(r"[-_\s]+", " ", version).strip().lower() == TEXT_ONLY,
        category=version,
        facets={
            "problem_version": version,
            "question_type": row.text("question_type"),
            **{name: about[name] for name in ("subject", "subfield") if about.get(name)},
        },
        question=row.text("question"),
        query_cot=row.text("query_cot"),
        question_for_eval=whole,
        **({} if row.values["problem"] is None else {PROBLEM: str(row.values["problem"])}),
    )


def _mathvision(row: ShardRow) -> Sample:
    options = _texts(row, "options")
    answer = _answer(row)
    if options and answer not in ascii_uppercase[: len(options)]:
        raise DataError(
            f"the answer {answer!r} is not the letter of an option",
            where=row.place,
            fix=f"write one of {', '.join(ascii_uppercase[: len(options)])}",
        )
    question, subject = row.text("question"), row.text("subject")
    listed = "".join(
        f"\n({letter}) {option}" for letter, option in zip(ascii_uppercase, options, strict=False)
    )
    return _sample(
        row,
        source="mathvision",
        text=question + (f"\nChoices:{listed}" if options else ""),
        truth=answer,
        answer=options[ascii_uppercase.index(answer)] if options else answer,
        options=options,
        category=subject,
        facets={"subject": subject, "level": str(row.values["level"])},
        question=question,
    )


def _sample(
    row: ShardRow,
    *,
    source: str,
    text: str,
    truth: str,
    answer: str,
    options: tuple[str, ...],
    category: str,
    facets: Mapping[str, Any],
    lettered: bool = False,
    aliases: Sequence[str] = (),
    text_only: bool = False,
    **kept: Any,
) -> Sample:
    """A question about the pictures of a row.

    Args:
        row: The row.
        source: The sample's source, also the prefix of its id.
        text: The question; an `<image>` in it would be taken for a picture.
        truth: A letter, or the answer.
        answer: The answer in words.
        options: Empty if there are none, or if only the picture shows them.
        category: Category by which items are told apart.
        facets: What scores are split by: name -> value or values.
        lettered: Whether the answer is a letter although the options are unknown.
        aliases: Further spellings of an answer that is compared as text.
        text_only: Whether the row may lack a picture.
        kept: Further `extra`.
    """
    _check_asked(row, text, text_only=text_only)
    verifier: str = exact.NAME
    parm: dict[str, Any] = {"aliases": list(aliases)} if aliases else {}
    if options:
        verifier, parm = choice.NAME, {"letter_rule": "loose"}
    elif lettered:
        verifier = choice.NAME
    elif is_number(truth) or is_formula(truth):
        verifier = math.NAME
    return Sample(
        id=f"{source}/{row.values['id']}",
        source=source,
        prompt=(Message("user", f"{IMAGE}\n" * len(row.pictures) + text, tuple(range(len(row.pictures)))),),
        images=tuple(Picture(data=picture) for picture in row.pictures),
        ability="math",
        ground_truth=truth,
        answer=answer,
        verifier=verifier,
        verifier_parm=parm,
        choices=options,
        extra={"category": category, "facets": dict(facets), "query": text, **kept},
    )


def _check_asked(row: ShardRow, text: str, *, text_only: bool) -> None:
    """Check that a row can be asked.

    Raises:
        DataError: If there is no question, or no picture, or the question holds `<image>`.
    """
    if not row.pictures and not text_only:
        raise DataError("the row has no picture", where=row.place, fix="drop the row, or download it again")
    if not text.strip():
        raise DataError("the question is empty", where=row.place, fix="drop the row, or download it again")
    if IMAGE in text:
        raise DataError(f"the question holds {IMAGE}", where=row.place, fix="is it the published file?")


def _letters_in_a_row(answer: str) -> tuple[str, ...]:
    """Spellings, in any order, of several letters that are right together; MathVerse writes one per line."""
    letters = answer.split()
    if len(letters) < 2 or not all(letter in ascii_uppercase for letter in letters):
        return ()
    orders = permutations(letters) if len(letters) <= MOST_LETTERS else [letters]
    return tuple(between.join(order) for order in orders for between in (", ", ",", " and ", " ", ""))


def _answer(row: ShardRow) -> str:
    value = row.values["answer"]
    text = "" if value is None else str(value).strip()
    if not text:
        raise DataError("there is no answer", where=row.place, fix="is it a split that publishes answers?")
    return text


def _texts(row: ShardRow, name: str) -> tuple[str, ...]:
    """A column of texts; empty if it is null."""
    value = row.values[name]
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise DataError(f"`{name}` is not a list", where=row.place, fix="is it the published file?")
    return tuple(str(one) for one in value)


def _about(row: ShardRow) -> Mapping[str, Any]:
    value = row.values["metadata"]
    if not isinstance(value, Mapping):
        raise DataError("`metadata` is not a struct", where=row.place, fix="is it the published file?")
    return value

"""Text in pictures as OCRBench v2 scores it: by the question's metric, or by the official scorer."""

import json
from collections.abc import Sequence
from typing import Any

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS
from vtune.verifiers.readings import OF_TEXT, answer_and_box, box_overlap, field_share, fields_in, last_box
from vtune.verifiers.verifier import (
    ELSEWHERE,
    Case,
    Verifier,
    answered,
    given_answer,
    no_answer,
    one_of,
    options,
    quote,
    unreadable,
    where,
    wrong_option,
)

NAME = "reading"

OFFICIAL = {
    "teds": "TEDS of tables, charts and documents, by OCRBench v2's own script",
    "page": "BLEU, METEOR, F and edit distance of pages, by OCRBench v2's own script",
    "spotting": "the end-to-end score of text spotting, by OCRBench v2's own script",
}
"""Metric that only the official scorer has -> what it is."""
METRICS = (*OF_TEXT, "fields", "box", "answer_and_box", *OFFICIAL)


def verify_reading(reply: str, sample: Sample) -> Verdict:
    """Score by the metric of the question's type.

    `verifier_parm` may contain `answer_in`, `metric` (see `METRICS`; `contains` by default) and, for
    `answer_and_box`, `bbox`. The ground truth is JSON: a list of texts; for `fields` an object of lists; for
    `box` four numbers in thousandths. Replies for the metrics in `OFFICIAL` are exported
    (`vtune.runs.evaluate.scorers`).

    Raises:
        DataError: As for `check_reading`, or if only the official scorer can tell.
    """
    metric, truth = _judging(sample)
    given = given_answer(reply, sample)
    if given is None:
        return no_answer(sample)
    if not given.strip():
        return unreadable("the answer is empty")
    if metric in OFFICIAL:
        raise DataError(
            f"{ELSEWHERE}: {OFFICIAL[metric]}",
            where=where(sample),
            fix="`vtune scores export` writes its file, `vtune scores import` reads its scores",
        )
    if metric == "box" and last_box(given) is None:
        return unreadable(f"{quote(given)} holds no box")
    if metric in ("fields", "answer_and_box") and not fields_in(given):
        return unreadable(f"{quote(given)} holds no fields")
    return answered(_score(metric, given, truth, sample), f"{metric} of {quote(given)}")


def _score(metric: str, given: str, truth: Any, sample: Sample) -> float:
    if metric == "box":
        return box_overlap(given, truth)
    if metric == "fields":
        return field_share(given, truth)
    if metric == "answer_and_box":
        return answer_and_box(given, truth, sample.verifier_parm["bbox"])
    return OF_TEXT[metric](given, truth)


def check_reading(sample: Sample) -> None:
    """Check that the ground truth has the form that the metric reads.

    Raises:
        DataError: If not, or if an option is unknown.
    """
    _judging(sample)


def reading_form(sample: Sample) -> str:
    """What an answer looks like."""
    return "what the question asks for, in the form that it asks for"


def right_reading(sample: Sample) -> str:
    """The answer that gives the ground truth.

    Raises:
        DataError: As for `check_reading`.
    """
    metric, truth = _judging(sample)
    if metric == "box":
        return str([int(side) for side in truth])
    if metric == "fields":
        return json.dumps({key: values[0] for key, values in truth.items()}, ensure_ascii=False)
    if metric == "answer_and_box":
        box = [int(side) for side in sample.verifier_parm["bbox"]]
        return json.dumps({"answer": truth[0], "bbox": box}, ensure_ascii=False)
    return str(truth[0])


def officially(sample: Sample) -> bool:
    """Whether only the official scorer can tell."""
    return _judging(sample)[0] in OFFICIAL


def _judging(sample: Sample) -> tuple[str, Any]:
    """(metric, truth)."""
    given = options(sample, {"answer_in", "metric", "bbox"})
    metric = one_of(sample, "metric", METRICS, default="contains")
    try:
        truth = json.loads(sample.ground_truth)
    except ValueError:
        truth = None
    fits = (
        _is_box(truth) if metric == "box" else _is_fields(truth) if metric == "fields" else _are_texts(truth)
    )
    if metric == "count_near" and fits:
        fits = all(text.isascii() and text.isdecimal() and int(text) > 0 for text in truth)
    if not fits:
        raise DataError(
            f"the ground truth {quote(sample.ground_truth)} is not something that `{metric}` compares with",
            where=where(sample),
            fix="write JSON: a list of texts, an object of lists of texts, or four numbers",
        )
    if metric == "answer_and_box" and not _is_box(given.get("bbox")):
        raise wrong_option(sample, "bbox", given.get("bbox"), "[x0, y0, x1, y1] in thousandths")
    return metric, truth


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)


def _is_fields(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(map(_are_texts, value.values()))


def _is_box(value: Any) -> bool:
    sides: Sequence[Any] = value if isinstance(value, list) else ()
    return len(sides) == 4 and all(type(side) in (int, float) and abs(side) < 1e6 for side in sides)


VERIFIERS.add(
    NAME,
    Verifier(
        verify_reading,
        check_reading,
        reading_form,
        Case(gold="A", broken_gold="A", wrong="B", truth='["A"]', parm={"metric": "letters"}),
        right=right_reading,
        partial_credit=True,
        in_worker=True,  # edit distances of long answers take seconds
        elsewhere=officially,
    ),
)

"""MEGA-Bench answers, scored field by field with the task's metrics, or by the official scorer."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS
from vtune.verifiers.mega_metrics import METRICS, score
from vtune.verifiers.mega_parsing import JSON, PARSERS, fields_of, single_fields, unquoted
from vtune.verifiers.mega_values import boxes_of
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

NAME = "mega_bench"

OFFICIAL: Mapping[str, str] = MappingProxyType(
    {
        "gpt_4o_as_judge": "asks a model",
        "ascii_art_gpt4o_judge": "asks a model to look at drawings",
        "nli_entailment": "needs a model of entailment",
        "bleu": "needs sacrebleu",
        "gleu_cn": "needs jieba's words and nltk",
        "latex_expr_equality": "needs sympy's parser of LaTeX",
        "text_with_latex_expr_equality": "needs sympy's parser of LaTeX",
        "geo_proximity_location_dict": "asks a geocoder on the network",
        "program_judge": "runs the program of the answer",
        "symbolic_planning_test": "needs a simulator of plans",
        "constrained_generation": "needs WordNet, a tokenizer and a dictionary of pronunciations",
    }
)
"""Metric that only MEGA-Bench's own evaluator implements -> why."""
DUMMY = "dummy"
"""The parser for tasks whose whole reply goes to a judge or to `constrained_generation`."""
IN_BOXES = "xml_norm_point_in_bbox"
"""The metric that uses the boxes of the question, not the truth of the field."""
AGGREGATIONS = ("mean", "min")
_PARM = {"answer_in", "metrics", "parser", "aggregation", "weights", "boxes"}


@dataclass(frozen=True, slots=True)
class _Judging:
    """How a sample wants its fields judged."""

    truths: dict[str, Any]
    metrics: dict[str, str]
    parser: str
    aggregation: str
    weights: dict[str, float]
    boxes: list[str]

    def waits_for(self) -> list[str]:
        """Which of its metrics only the official scorer implements."""
        return sorted(({self.parser} | set(self.metrics.values())) & {DUMMY, *OFFICIAL})


def verify_mega(reply: str, sample: Sample) -> Verdict:
    """Score each field by its metric and combine the scores.

    The ground truth is a JSON object: field -> truth. `verifier_parm` contains `metrics` (field -> name; a
    field without one is not scored), `parser` (one of `PARSERS`, or `dummy`), `aggregation` (`mean`, the
    default, or `min`), `weights` of the mean (default 1), `boxes` for `xml_norm_point_in_bbox`, and
    `answer_in`. A score below 0 leaves its field out; if none is left, the result is 0. Tasks with a metric
    in `OFFICIAL` are exported (`vtune.runs.evaluate.scorers`).

    Source: TIGER-AI-Lab/MEGA-Bench ee324ab, `evaluation_processor.py` and `metrics/aggregation`.

    Raises:
        DataError: As for `check_mega`, or if only the official scorer can tell.
    """
    judging = _judging(sample)
    given = given_answer(reply, sample)
    if given is None:
        return no_answer(sample)
    if not given.strip():
        return unreadable("the answer is empty")
    if waiting := judging.waits_for():
        raise DataError(
            f"{ELSEWHERE}: {', '.join(waiting)}, by MEGA-Bench's own evaluator",
            where=where(sample),
            fix="`vtune scores export` writes its file, `vtune scores import` reads its scores",
        )
    said = fields_of(given, judging.parser, judging.truths)
    scores = {
        name: score(
            metric, said.get(name), judging.boxes if metric == IN_BOXES else unquoted(judging.truths[name])
        )
        for name, metric in judging.metrics.items()
    }
    why = ", ".join(f"{name} {value:.3g}" for name, value in scores.items())
    return answered(aggregated(scores, judging.aggregation, judging.weights), f"{why} in {quote(given)}")


def aggregated(scores: Mapping[str, float], aggregation: str, weights: Mapping[str, float]) -> float:
    """The weighted mean or the minimum of the scores that are not below 0; 0 if there are none."""
    kept = {name: value for name, value in scores.items() if value >= 0}
    if aggregation == "min":
        return min(kept.values(), default=0.0)
    whole = math.fsum(weights.get(name, 1.0) for name in kept)
    mean = math.fsum(weights.get(name, 1.0) * value for name, value in kept.items()) / whole if whole else 0.0
    return min(mean, 1.0)


def check_mega(sample: Sample) -> None:
    """Check that fields, metrics and parser are present and fit together.

    Raises:
        DataError: If not, or if an option is unknown.
    """
    _judging(sample)


def mega_form(sample: Sample) -> str:
    """What an answer looks like."""
    return "what the question asks for, in the form that it asks for"


def right_mega(sample: Sample) -> str:
    """The answer that gives the ground truth.

    Raises:
        DataError: As for `check_mega`.
    """
    judging = _judging(sample)
    truths = dict(judging.truths)
    for name, metric in judging.metrics.items():
        if metric == IN_BOXES:
            x0, y0, x1, y1 = boxes_of(judging.boxes[0])[0]
            truths[name] = f"<point>{(x0 + x1) / 2}, {(y0 + y1) / 2}</point>"
    if judging.parser in PARSERS and judging.parser != JSON:
        return f"Answer:\n{truths[single_fields(truths)[0]]}"
    return json.dumps(truths, ensure_ascii=False)


def officially(sample: Sample) -> bool:
    """Whether only the official scorer can judge it."""
    return bool(_judging(sample).waits_for())


def _judging(sample: Sample) -> _Judging:
    given = options(sample, _PARM)
    try:
        truths = json.loads(sample.ground_truth)
    except ValueError:
        truths = None
    if not isinstance(truths, dict) or not truths:
        raise DataError(
            f"the ground truth {quote(sample.ground_truth)} is not an object of fields",
            where=where(sample),
            fix='write JSON: {"answer": "…"}',
        )
    parser = one_of(sample, "parser", (*PARSERS, DUMMY), default=JSON)
    if parser not in (JSON, DUMMY) and len(single_fields(truths)) != 1:
        raise wrong_option(sample, "parser", parser, f"{JSON}, where an answer has several fields,")
    metrics = given.get("metrics") or dict.fromkeys(truths, "exact_str_match")
    if not isinstance(metrics, dict) or not metrics or not _known(metrics, truths):
        raise wrong_option(sample, "metrics", metrics, "an object: field of the ground truth -> metric")
    weights = given.get("weights", {})
    if not isinstance(weights, dict) or not all(_is_weight(weights.get(name, 1)) for name in metrics):
        raise wrong_option(sample, "weights", weights, "an object: field -> number of at least 0")
    boxes = given.get("boxes", [])
    listed = isinstance(boxes, list) and all(boxes_of(box) for box in boxes)
    if not listed or (IN_BOXES in metrics.values() and not boxes):
        raise wrong_option(sample, "boxes", boxes, 'a list of texts "(x0, y0, x1, y1)"')
    aggregation = one_of(sample, "aggregation", AGGREGATIONS, default=AGGREGATIONS[0])
    return _Judging(truths, metrics, parser, aggregation, weights, boxes)


def _known(metrics: Mapping[Any, Any], truths: Mapping[str, Any]) -> bool:
    """Whether each metric has a name and a field with a truth."""
    known = METRICS.keys() | OFFICIAL.keys()
    return set(map(str, metrics.values())) <= known and metrics.keys() <= truths.keys()


def _is_weight(value: Any) -> bool:
    return type(value) in (int, float) and value >= 0 and math.isfinite(value)


VERIFIERS.add(
    NAME,
    Verifier(
        verify_mega,
        check_mega,
        mega_form,
        Case(
            gold="Exit",
            broken_gold="A",
            wrong="Hall",
            truth='{"answer": "Exit"}',
            parm={"parser": "answer_string", "metrics": {"answer": "exact_str_match"}},
        ),
        right=right_mega,
        partial_credit=True,
        in_worker=True,  # edit distances of long answers take seconds
        elsewhere=officially,
    ),
)

"""Checks what a scorer returned before it is written, since a user's own may return anything."""

import json
import sys
from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any, TypeGuard

from vtune.errors import OutOfRange, VtuneError
from vtune.files.json_text import check_depth
from vtune.metrics.benchmarks import SCORERS, Mark, Scores
from vtune.parts import OURS
from vtune.schema.source_names import ALL
from vtune.uses import broken, defined, ill_made

GIVE = (
    'return a dict of names and numbers, as {"score": 0.5}; write `float(…)` around those of numpy and torch'
)
NUMBER = "give `score` as a finite number; None where it cannot be known"
PLAIN = "write `float(…)` around it: it is a number of numpy or torch"
"""The next step for a number of another library."""
NEAR = 1e-6
"""Two means of the same rewards differ by less than this; ours."""
ENDS = ("value", "low", "high")
"""Keys of a number with its interval."""


def scored_by(scorer: str, marks: Sequence[Mark]) -> Scores:
    """A scorer's result for marks; without `score` if that is None.

    Args:
        scorer: Its name.
        marks: Marks of all rollouts.

    Raises:
        BrokenPart: If a custom scorer returned something other than a dict, a value that JSON cannot
            represent, a `score` that is not a finite number, or no `score` although all marks were scored.
    """
    part, scores = (SCORERS.kind, scorer), raw_scores(scorer, marks)
    if what := _no_score(scores, marks, own=scorer not in OURS[SCORERS.kind]):
        fix = PLAIN if _converts(scores.get("score")) else NUMBER
        raise ill_made(part, OutOfRange(what, fix), fix, defined(SCORERS[scorer]))
    for what, fix in ((_unwritten(scores), GIVE), _misshapen(scores)):
        if what:
            raise ill_made(part, what, fix, defined(SCORERS[scorer]))
    if scores.get("score") is None:
        scores.pop("score", None)
    return scores


def raw_scores(scorer: str, marks: Sequence[Mark]) -> Scores:
    """A scorer's result, unchecked except that it is a dict.

    Raises:
        BrokenPart: If a custom scorer fails or does not return a dict.
    """
    try:
        found: object = SCORERS[scorer](list(marks))  # it may sort or empty its list: ours has to last
    except VtuneError:
        raise  # the error already says what to do next
    except Exception as error:
        if failed := broken(error, (SCORERS.kind, scorer)):
            raise failed from error
        raise
    if not isinstance(found, Mapping):
        what = f"it returns {found!r:.60}, not a dict"
        raise ill_made((SCORERS.kind, scorer), what, GIVE, defined(SCORERS[scorer]))
    return dict(found)


def is_mean(results: Mapping[str, Any]) -> bool:
    """Whether an evaluation's score is the mean over its rollouts, which intervals and tests assume.

    Unknown, hence false, for a custom scorer; a built-in one may weight parts, or score all answers as a set.

    Args:
        results: As in `results.json`; missing values do not count against it.
    """
    if is_own(results):
        return False
    score, mean = number_at(results, "score", "score"), number_at(results, "sources", ALL, "reward_accuracy")
    return score is None or mean is None or isclose(score, mean, abs_tol=NEAR)


def is_own(results: Mapping[str, Any]) -> bool:
    """Whether an evaluation's score comes from a custom scorer, whose other numbers may mean anything.

    Args:
        results: As in `results.json`.
    """
    suite = results.get("suite")
    scorer = suite.get("scorer") if isinstance(suite, Mapping) else None
    return isinstance(scorer, str) and scorer not in OURS[SCORERS.kind]


def number_at(results: object, *keys: str) -> float | None:
    """A number within results, which may have been edited; None if there is none."""
    for key in keys:
        results = results.get(key) if isinstance(results, Mapping) else None
    return results if _is_number(results) else None


def _no_score(scores: Mapping[str, Any], marks: Sequence[Mark], *, own: bool) -> str:
    """What is wrong with `score`, in words; empty if nothing."""
    if "score" not in scores:
        # Built-in scorers omit it if there is nothing to measure, e.g. an AP without boxes.
        known = own and marks and all(mark.score is not None for mark in marks)
        keys = ", ".join(map(str, scores)) or "nothing"
        return (
            f"it returns no `score` though all {len(marks)} rollouts were scored: {keys:.60}" if known else ""
        )
    score = scores["score"]
    return "" if score is None or _is_number(score) else f"it returns {score!r:.60} as `score`"


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def _converts(value: object) -> bool:
    """Whether it holds a single number of numpy or torch, other than numpy's `float64`."""
    return not isinstance(value, float) and getattr(value, "shape", None) in ((), (1,))


def _unwritten(scores: Mapping[str, Any]) -> str:
    """The value that JSON cannot represent, in words; empty if there is none."""
    for name, value in scores.items():
        try:
            check_depth(value)
            json.dumps({name: value}, allow_nan=False)
        except (TypeError, ValueError) as error:
            return f"its `{name}` is {value!r:.60}, which is not JSON: {error}"
    return ""


def _misshapen(scores: Mapping[str, Any], place: str = "") -> tuple[str, str]:
    """What tables could not read besides the score, and how to fix it; empty if nothing."""
    sure, unscored = scores.get("intervals", {}), scores.get("unscored_parts", ())
    if not isinstance(sure, Mapping) or not all(map(_is_estimate, sure.values())):
        return f"its `{place}intervals` is {sure!r:.60}", 'give {"score": {"value": …, "low": …, "high": …}}'
    if not isinstance(unscored, list | tuple) or not all(isinstance(name, str) for name in unscored):
        return f"its `{place}unscored_parts` is {unscored!r:.60}", "give a list of names"
    parts = scores.get("categories", {})
    if not isinstance(parts, Mapping) or not all(map(_is_part, parts.values())):
        return (
            f"its `{place}categories` is {parts!r:.60}",
            "give a dict with a finite number for each category",
        )
    nested = {name: one for name, one in scores.items() if isinstance(one, Mapping) and name != "intervals"}
    found = (_misshapen(one, f"{place}{name}.") for name, one in nested.items())
    return next((wrong for wrong in found if wrong[0]), ("", ""))


def _is_part(value: object) -> bool:
    """Whether it is the score of a category, or numbers with a score among them."""
    score = value.get("score") if isinstance(value, Mapping) else value
    return score is None or _is_number(score)


def _is_estimate(value: object) -> bool:
    """Whether it is a number with its interval."""
    return isinstance(value, Mapping) and all(
        end in value and (value[end] is None or _is_number(value[end])) for end in ENDS
    )

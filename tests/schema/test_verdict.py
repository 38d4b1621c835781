"""Scores and outcomes computed by users' parts."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from vtune.schema.trajectory import Outcome
from vtune.schema.verdict import Verdict


@pytest.mark.parametrize("score", [np.float32(0.5), np.float64(0.5), np.array(0.5)])
def test_a_numpy_number_becomes_a_serialisable_one(score: float) -> None:
    verdict = Verdict(score, "half", {"iou": score, "boxes": np.int64(3), "unreadable": np.bool_(False)})
    assert json.loads(json.dumps([verdict.score, dict(verdict.parts)])) == [
        0.5,
        {"iou": 0.5, "boxes": 3.0, "unreadable": 0.0},
    ]
    assert json.dumps(Outcome(score, "half").score) == "0.5"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_part_that_is_not_a_number_is_an_error_at_construction(value: float) -> None:
    with pytest.raises(ValueError, match="part 'iou' of a verdict is"):
        Verdict(0.5, "half", {"iou": value})


@pytest.mark.parametrize("score", [None, "0.5", [0.5], np.array([0.5])])
@pytest.mark.parametrize("made", [Verdict, Outcome])
def test_a_score_that_is_no_number_is_an_error(
    score: Any, made: Callable[[Any, str], Verdict | Outcome]
) -> None:
    with pytest.raises(TypeError, match=r"a score is .*: give a number"):
        made(score, "right")


@pytest.mark.parametrize("score", [True, np.bool_(True), np.float32(1), 1])
@pytest.mark.parametrize("made", [Verdict, Outcome])
def test_a_score_is_stored_as_a_plain_number(
    score: Any, made: Callable[[Any, str], Verdict | Outcome]
) -> None:
    assert repr(made(score, "right").score) == "1.0"


def test_the_reason_of_an_outcome_is_a_text() -> None:
    with pytest.raises(TypeError, match="the reason of an outcome is None: write a text"):
        Outcome(0.5, None)  # type: ignore[arg-type]

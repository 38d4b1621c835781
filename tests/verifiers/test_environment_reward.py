"""The verifier that uses an environment's outcome."""

from dataclasses import replace
from typing import Any

import pytest

from tests.verifiers.cases import sample
from vtune.errors import DataError
from vtune.schema.trajectory import Outcome
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS, check_ground_truth
from vtune.verifiers.answer_instruction import missing_marks
from vtune.verifiers.environment_reward import NAME, with_outcome
from vtune.verifiers.perfect import check_full_marks, perfect_reply

SAMPLE = sample(NAME, "")


@pytest.mark.parametrize("score", [0.0, 0.25, 1.0, 1])
@pytest.mark.parametrize("reply", ["", "<answer>7</answer>"])
def test_the_score_is_the_environments_outcome_whatever_the_reply(score: float, reply: str) -> None:
    asked = with_outcome(SAMPLE, Outcome(score, "as far as the door"))
    assert VERIFIERS[NAME].verify(reply, asked) == Verdict(
        float(score), "as far as the door", {"unreadable": 0.0}
    )


def test_without_an_outcome_nothing_is_scored() -> None:
    assert with_outcome(SAMPLE, None) == SAMPLE
    assert with_outcome(with_outcome(SAMPLE, Outcome(1.0, "from the data")), None) == SAMPLE
    with pytest.raises(DataError, match="has given no reward"):
        VERIFIERS[NAME].verify("7", SAMPLE)


@pytest.mark.parametrize("value", [1.0, [1.0], [2.0, "far"], [float("nan"), "far"], ["1", "far"], [True, ""]])
def test_an_invalid_outcome_is_refused(value: Any) -> None:
    with pytest.raises(DataError, match="`outcome` is"):
        check_ground_truth(replace(SAMPLE, verifier_parm={"outcome": value}))


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(DataError, match="has no option `answer_in`"):
        check_ground_truth(replace(SAMPLE, verifier_parm={"answer_in": "tag"}))


def test_no_answer_is_requested_and_none_is_right() -> None:
    assert missing_marks(SAMPLE) == ()
    check_full_marks(SAMPLE, None)
    with pytest.raises(DataError, match="no reply is right by itself"):
        perfect_reply(SAMPLE)


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan")])
def test_an_outcome_is_between_0_and_1(score: float) -> None:
    with pytest.raises(ValueError, match=r"must be in \[0, 1\]"):
        Outcome(score, "")

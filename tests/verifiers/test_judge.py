import asyncio

import pytest

from tests.verifiers.cases import sample, wrap
from vtune.errors import DataError, ServiceError
from vtune.schema.sample import Sample
from vtune.verifiers import check_ground_truth
from vtune.verifiers.judge import LONGEST, judged
from vtune.verifiers.verifying import Verifying

QUESTION = sample("judge", "a red cup", parm={"aliases": ["red mug"]})


def asked(*replies: str, finds: bool = True) -> tuple[list[float], list[str]]:
    """The scores, and the answers sent to the judge."""
    seen: list[str] = []

    async def judge(answer: str, what: Sample) -> bool:
        assert what is QUESTION
        seen.append(answer)
        return finds

    async def story() -> list[float]:
        verifying = Verifying()
        return [(await verifying.verify(reply, QUESTION, judge=judge)).score for reply in replies]

    return asyncio.run(story()), seen


def test_the_judge_is_asked_only_if_no_rule_decides() -> None:
    replies = [wrap(answer) for answer in ("A red cup.", "Red  mug", "", "x" * LONGEST, "a cup, red")]
    assert asked(*replies, "no tags") == ([1.0, 1.0, 0.0, 0.0, 1.0, 0.0], ["a cup, red"])


def test_the_judges_verdict_counts() -> None:
    assert asked(wrap("a pen"), finds=False) == ([0.0], ["a pen"])


def test_a_failing_judge_does_not_give_a_zero() -> None:
    async def down(answer: str, what: Sample) -> bool:
        raise ServiceError("no reply")

    for judge in (down, None):
        with pytest.raises(ServiceError):
            asyncio.run(Verifying().verify(wrap("a pen"), QUESTION, judge=judge))


@pytest.mark.parametrize("gold", [" ", ".", "x" * LONGEST])
def test_a_truth_that_cannot_be_compared_is_our_error(gold: str) -> None:
    with pytest.raises(DataError):
        check_ground_truth(sample("judge", gold))


def test_not_attempted_is_a_share_of_judged_answers() -> None:
    """If only unattempted answers had this part, its mean would always be 1."""
    passing = sample("judge", "Bern", parm={"grading": "attempted"})
    parts = [judged("x", passing, same=same).parts["not_attempted"] for same in (True, False, None)]
    assert parts == [0.0, 0.0, 1.0]
    assert "not_attempted" not in judged("x", QUESTION, same=False).parts

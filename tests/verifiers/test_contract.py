"""What every verifier guarantees."""

import asyncio
import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verifiers.cases import CASES, sample_of, wrap
from vtune.errors import DataError, ServiceError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS, check_ground_truth
from vtune.verifiers.exact import normalise
from vtune.verifiers.verifying import Verifying

EVERY = pytest.mark.parametrize("name", sorted(CASES))
CHEAP = pytest.mark.parametrize(
    "name",
    sorted(name for name in CASES if not VERIFIERS[name].in_worker and not VERIFIERS[name].asks_judge),
)
NO_ANSWER = ["", "<answer></answer>", "<answer>", "I do not know.", "<think>", "</answer><answer>"]

HEDGED = "who names several answers has none: score it 0"
TOO_NEAR = (
    "score it 0, or, where that is right of partial credit (a few words beside the gold answer), "
    "give the verifier's `Case` a longer `wrong`"
)


async def literal_judge(answer: str, sample: Sample) -> bool:
    """A judge that knows no synonyms."""
    return normalise(answer) == normalise(sample.ground_truth)


def verdict(name: str, reply: str) -> Verdict:
    if VERIFIERS[name].asks_judge:
        return asyncio.run(Verifying().verify(reply, sample_of(name), judge=literal_judge))
    return VERIFIERS[name].verify(reply, sample_of(name))


def score(name: str, reply: str) -> float:
    return verdict(name, reply).score


def test_every_verifier_has_a_case() -> None:
    assert CASES
    assert [name for name in VERIFIERS if name not in CASES] == ["environment_reward"]


@EVERY
def test_the_gold_answer_earns_full_marks(name: str) -> None:
    assert score(name, wrap(CASES[name].gold)) == 1.0


@EVERY
def test_a_wrong_answer_earns_nothing(name: str) -> None:
    assert score(name, wrap(CASES[name].wrong)) == 0.0


@EVERY
@pytest.mark.parametrize("reply", NO_ANSWER)
def test_no_answer_earns_nothing_and_counts_as_unreadable(name: str, reply: str) -> None:
    assert score(name, reply) == 0.0
    assert verdict(name, "").parts["unreadable"] == 1.0


@EVERY
def test_a_readable_answer_does_not_count_as_unreadable(name: str) -> None:
    for answer in (CASES[name].gold, CASES[name].wrong):
        assert verdict(name, wrap(answer)).parts["unreadable"] == 0.0


@EVERY
def test_hedging_earns_nothing(name: str) -> None:
    case = CASES[name]
    gold = wrap(case.gold)
    assert score(name, f"{gold} or {gold}") == 0.0
    assert score(name, gold + wrap(case.wrong)) == 0.0
    for joined in (f"{case.gold} or {case.wrong}", f"{case.wrong}, {case.gold}", f"{case.gold} {case.wrong}"):
        earned = score(name, wrap(joined))
        assert earned == 0.0, f"{joined!r} earns {earned}: {TOO_NEAR if earned < 1.0 else HEDGED}"


@EVERY
def test_a_good_ground_truth_passes_its_check(name: str) -> None:
    check_ground_truth(sample_of(name))


@EVERY
def test_a_broken_gold_answer_is_our_error_not_a_zero(name: str) -> None:
    broken = sample_of(name, gold=CASES[name].broken_gold)
    with pytest.raises(DataError):
        check_ground_truth(broken)
    with pytest.raises(DataError):
        VERIFIERS[name].verify(wrap("x"), broken)


@EVERY
def test_an_unknown_option_is_an_error_that_names_the_sample(name: str) -> None:
    odd = dataclasses.replace(sample_of(name), verifier_parm={"tolerance": 1})
    with pytest.raises(DataError, match="quiz/1"):
        check_ground_truth(odd)


@EVERY
def test_an_option_that_is_null_counts_as_absent(name: str) -> None:
    check_ground_truth(dataclasses.replace(sample_of(name), verifier_parm={"tolerance": None}))


def test_an_unknown_verifier_is_an_error_with_a_suggestion() -> None:
    odd = dataclasses.replace(sample_of("choice"), verifier="choise")
    with pytest.raises(DataError, match="did you mean `choice`"):
        check_ground_truth(odd)


@EVERY
def test_every_reply_has_the_same_facts(name: str) -> None:
    replies = ("", wrap("?"), wrap(CASES[name].wrong), wrap(CASES[name].gold))
    assert len({frozenset(verdict(name, reply).parts) for reply in replies}) == 1


def test_without_a_judge_an_answer_that_no_rule_decides_is_unscored() -> None:
    assert VERIFIERS["judge"].verify(wrap("A red cup."), sample_of("judge")).score == 1.0
    with pytest.raises(ServiceError, match="only a judge can tell"):
        VERIFIERS["judge"].verify(wrap("a crimson mug"), sample_of("judge"))


@CHEAP
@settings(max_examples=50, deadline=None)
@given(text=st.text())
def test_no_reply_raises_and_scores_are_between_0_and_1(name: str, text: str) -> None:
    for reply in (text, wrap(text)):
        assert 0.0 <= score(name, reply) <= 1.0


@settings(max_examples=25, deadline=None)
@given(text=st.text(alphabet=st.sampled_from("0123456789+-*/^(){}[]\\frac sqrtx=<>,.%$ \n"), max_size=30))
def test_no_formula_raises_in_math(text: str) -> None:
    assert score("math", wrap(text)) in (0.0, 1.0)

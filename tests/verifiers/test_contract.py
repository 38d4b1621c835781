"""What every verifier promises."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verifiers.cases import CASES, sample_of, wrap
from vtune.errors import DataError
from vtune.verifiers import VERIFIERS, check_ground_truth

EVERY = pytest.mark.parametrize("name", sorted(VERIFIERS))
CHEAP = pytest.mark.parametrize("name", sorted(name for name in VERIFIERS if not VERIFIERS[name].in_worker))
NO_ANSWER = ["", "<answer></answer>", "<answer>", "I do not know.", "<think>", "</answer><answer>"]


def score(name: str, reply: str) -> float:
    return VERIFIERS[name].verify(reply, sample_of(name)).score


def test_every_verifier_has_a_case() -> None:
    assert VERIFIERS
    assert set(CASES) == set(VERIFIERS)


@EVERY
def test_the_gold_answer_earns_full_marks(name: str) -> None:
    assert score(name, wrap(CASES[name].gold)) == 1.0


@EVERY
def test_a_wrong_answer_earns_nothing(name: str) -> None:
    assert score(name, wrap(CASES[name].wrong)) == 0.0


@EVERY
@pytest.mark.parametrize("reply", NO_ANSWER)
def test_no_answer_earns_nothing(name: str, reply: str) -> None:
    assert score(name, reply) == 0.0


@EVERY
def test_hedging_earns_nothing(name: str) -> None:
    case = CASES[name]
    gold = wrap(case.gold)
    assert score(name, f"{gold} or {gold}") == 0.0
    assert score(name, gold + wrap(case.wrong)) == 0.0
    for joined in (f"{case.gold} or {case.wrong}", f"{case.wrong}, {case.gold}", f"{case.gold} {case.wrong}"):
        assert score(name, wrap(joined)) == 0.0, joined


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


def test_an_unknown_verifier_is_an_error_that_names_the_nearest() -> None:
    odd = dataclasses.replace(sample_of("choice"), verifier="choise")
    with pytest.raises(DataError, match="did you mean `choice`"):
        check_ground_truth(odd)


@CHEAP
@given(text=st.text())
def test_no_reply_raises_and_every_score_lies_in_0_1(name: str, text: str) -> None:
    for reply in (text, wrap(text)):
        assert 0.0 <= score(name, reply) <= 1.0


@settings(max_examples=25, deadline=None)
@given(text=st.text(alphabet=st.sampled_from("0123456789+-*/^(){}[]\\frac sqrtx=<>,.%$ \n"), max_size=30))
def test_no_formula_raises_in_math(text: str) -> None:
    assert score("math", wrap(text)) in (0.0, 1.0)

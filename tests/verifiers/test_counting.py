import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verifiers.cases import sample, wrap
from vtune.errors import DataError
from vtune.verifiers import check_ground_truth
from vtune.verifiers.counting import verify_counting, whole_number


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        ("7", 7),
        (" 7. ", 7),
        ("007", 7),
        ("seven", 7),
        ("Seven", 7),
        ("zero", 0),
        ("nineteen", 19),
        ("twenty", 20),
        ("Twenty-one", 21),
        ("twenty one", 21),
        ("ninety-nine", 99),
        ("1,200", 1200),
        ("7.0", None),
        ("-7", None),
        ("1,2", None),
        ("7 cups", None),
        ("7 8", None),
        ("7 or 8", None),
        ("not seven", None),
        ("seventy-", None),
        ("²", None),
        ("٧", None),
        ("9" * 30, None),
        ("", None),
    ],
)
def test_only_a_bare_whole_number_is_readable(answer: str, number: int | None) -> None:
    assert whole_number(answer) == number


@given(st.integers(0, 10**6))
def test_every_number_is_read_with_and_without_commas(number: int) -> None:
    assert whole_number(str(number)) == whole_number(f"{number:,}") == number


@pytest.mark.parametrize(
    ("answer", "scores"),
    [
        ("2", (1, 1, 1)),
        ("2.0", (1, 0, 1)),
        ("\\frac{4}{2}", (1, 0, 1)),
        ("two", (0, 1, 0)),
        ("12", (0, 0, 1)),
        ("There are 2.", (0, 0, 1)),
        ("2 or 3", (0, 0, 1)),
        ("3", (0, 0, 0)),
    ],
)
def test_counts_are_compared_by_value_as_numbers_or_as_digits(answer: str, scores: tuple[int, ...]) -> None:
    """The first of these is V-Triune's equation 1."""
    rules = ({}, {"match": "equal"}, {"match": "substring"})
    samples = [sample("counting", "two", parm=parm) for parm in rules]
    assert tuple(verify_counting(wrap(answer), what).score for what in samples) == scores


def test_a_non_number_counts_as_unreadable_if_numbers_are_compared() -> None:
    what = sample("counting", "2", parm={"match": "equal"})
    assert verify_counting(wrap("There are 2."), what).parts == {"unreadable": 1.0}


def test_a_count_may_be_boxed() -> None:
    what = sample("counting", "2", parm={"answer_in": "boxed"})
    assert verify_counting("So there are \\boxed{2} of them.", what).score == 1.0
    assert verify_counting(wrap("2"), what).score == 0.0


@pytest.mark.parametrize(("gold", "parm"), [("many", {}), ("1.5", {}), ("2", {"match": "close"})])
def test_an_impossible_count_is_our_error(gold: str, parm: dict[str, str]) -> None:
    with pytest.raises(DataError):
        check_ground_truth(sample("counting", gold, parm=parm))

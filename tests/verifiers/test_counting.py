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
def test_only_a_whole_number_alone_can_be_read(answer: str, number: int | None) -> None:
    assert whole_number(answer) == number


@given(st.integers(0, 10**6))
def test_every_number_reads_as_itself_with_and_without_commas(number: int) -> None:
    assert whole_number(str(number)) == whole_number(f"{number:,}") == number


def test_equal_and_substring_differ_where_one_number_stands_in_the_other() -> None:
    equal, substring = sample("counting", "2"), sample("counting", "two", parm={"match": "substring"})
    for answer, scores in (
        ("2", (1, 1)),
        ("12", (0, 1)),
        ("There are 2.", (0, 1)),
        ("two", (1, 0)),
        ("3", (0, 0)),
    ):
        found = tuple(verify_counting(wrap(answer), what).score for what in (equal, substring))
        assert found == scores, answer
    assert verify_counting(wrap("There are 2."), equal).parts == {"unreadable": 1.0}


def test_a_count_may_be_boxed() -> None:
    what = sample("counting", "2", parm={"answer_in": "boxed"})
    assert verify_counting("So there are \\boxed{2} of them.", what).score == 1.0
    assert verify_counting(wrap("2"), what).score == 0.0


@pytest.mark.parametrize(("gold", "parm"), [("many", {}), ("1.5", {}), ("2", {"match": "close"})])
def test_what_nobody_can_count_to_is_our_error(gold: str, parm: dict[str, str]) -> None:
    with pytest.raises(DataError):
        check_ground_truth(sample("counting", gold, parm=parm))

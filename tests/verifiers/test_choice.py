import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verifiers.cases import sample, wrap
from vtune.errors import DataError
from vtune.verifiers import check_ground_truth
from vtune.verifiers.choice import inferred_letter, verify_choice

COLOURS = ("red", "blue", "dark green")


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        pytest.param("B", 1.0, id="letter"),
        pytest.param("b", 1.0, id="small letter"),
        pytest.param("B.", 1.0, id="letter and period"),
        pytest.param("(B)", 1.0, id="letter in parentheses"),
        pytest.param("B. blue", 1.0, id="letter and text"),
        pytest.param("(b) Blue.", 1.0, id="letter and text, other case"),
        pytest.param("Blue", 1.0, id="text"),
        pytest.param("A", 0.0, id="wrong letter"),
        pytest.param("red", 0.0, id="wrong text"),
        pytest.param("B. red", 0.0, id="letter beside the text of another"),
        pytest.param("B or A", 0.0, id="two letters"),
        pytest.param("A, B", 0.0, id="a list"),
        pytest.param("B. blue A. red", 0.0, id="two options"),
        pytest.param("D", 0.0, id="no such option"),
        pytest.param("red blue", 0.0, id="two texts"),
        pytest.param("", 0.0, id="nothing"),
    ],
)
def test_a_known_list_of_options(answer: str, score: float) -> None:
    for gold in ("B", "blue"):
        assert verify_choice(wrap(answer), sample("choice", gold, choices=COLOURS)).score == score


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        pytest.param("B", 1.0, id="letter"),
        pytest.param("(B) a blue cup", 1.0, id="words behind it are believed"),
        pytest.param("B. or C.", 0.0, id="another letter"),
        pytest.param("B. or a", 0.0, id="another small letter"),
        pytest.param("blue", 0.0, id="a text nobody can look up"),
    ],
)
def test_options_that_stand_only_in_the_prompt(answer: str, score: float) -> None:
    assert verify_choice(wrap(answer), sample("choice", "B")).score == score


def test_where_an_option_is_called_by_another_letter_the_letter_counts() -> None:
    assert verify_choice(wrap("A"), sample("choice", "A", choices=("B", "A"))).score == 1.0
    assert verify_choice(wrap("A. B"), sample("choice", "A", choices=("B", "A"))).score == 1.0


def test_an_option_that_begins_like_a_letter_is_found_by_its_text() -> None:
    choices = ("c. elegans", "b. subtilis")
    assert verify_choice(wrap("c. elegans"), sample("choice", "A", choices=choices)).score == 1.0


@pytest.mark.parametrize(
    ("gold", "choices"),
    [("blue", ()), ("D", COLOURS), ("", COLOURS), ("teal", COLOURS), ("red", ("red", "Red"))],
)
def test_a_ground_truth_that_names_no_single_option_is_an_error(gold: str, choices: tuple[str, ...]) -> None:
    with pytest.raises(DataError):
        check_ground_truth(sample("choice", gold, choices=choices))


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        pytest.param("B", "B", id="letter"),
        pytest.param("The answer is B.", "B", id="letter at the end"),
        pytest.param("I would choose option C: dark green", "C", id="letter among the last four words"),
        pytest.param("The correct answer is **b** because of all that I see there", "B", id="the answer is"),
        pytest.param("It is dark green", "C", id="text"),
        pytest.param("B. red", "B", id="the letter counts before the text"),
        pytest.param("A or B", None, id="two letters"),
        pytest.param("red and blue", None, id="two texts"),
        pytest.param("none of these", None, id="nothing"),
        pytest.param("A man stands there in the street and waits", None, id="an article far from the end"),
        pytest.param("red " + "very " * 20, None, id="much longer than the options"),
        pytest.param("D", None, id="no such option"),
        pytest.param("", None, id="empty"),
    ],
)
def test_a_sentence_is_read_as_benchmarks_publish_it(answer: str, letter: str | None) -> None:
    assert inferred_letter(answer, COLOURS) == letter
    for gold in "ABC":
        asked = sample("choice", gold, choices=COLOURS, parm={"reading": "inferred"})
        assert verify_choice(wrap(answer), asked).score == float(letter == gold)


def test_a_reading_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(DataError, match="unknown reading 'loose'"):
        check_ground_truth(sample("choice", "B", choices=COLOURS, parm={"reading": "loose"}))


@given(st.text(), st.lists(st.text(min_size=1), min_size=2, max_size=5))
def test_whatever_is_answered_is_read_as_an_option_or_as_none(answer: str, choices: list[str]) -> None:
    letter = inferred_letter(answer, tuple(choices))
    assert letter is None or letter in "ABCDE"[: len(choices)]

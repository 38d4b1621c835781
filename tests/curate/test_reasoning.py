import pytest

from tests.curate.build import item
from vtune.curate.reasoning import (
    AnswerLength,
    AnswerSymbols,
    NoGuessing,
    answer_of,
    guessable,
    has_symbols,
    too_long,
)

GUESS = NoGuessing(filter="no_guessing", rows="all")
SYMBOLS = AnswerSymbols(filter="answer_symbols", rows="all", symbols="=[]():")
LENGTH = AnswerLength(filter="answer_length", rows="all", at_most=20)

GUESSABLE = {
    "options in a column": item("Which?", "B", choices=("x", "y"), verifier="choice"),
    "verifier choice": item("Which?", "B", verifier="choice"),
    "options in the text": item("Which?\nA. two\nB. three", "B"),
    "options in brackets": item("Which? (A) two (B) three", "(B)"),
    "boxed letter": item("Which?\nA) two\nB) three", "\\boxed{A}"),
    "yes or no": item("Is it red?", "Yes"),
    "true or false": item("It is red.", "false."),
}
NOT_GUESSABLE = {
    "a number": item("How long is AB?", "12"),
    "a letter that is not an option": item("Which vertex is highest?", "B"),
    "a letter beside another list": item("Sizes: A. 3. Which vertex?", "B"),
    "a letter with a single mark": item("In triangle A. find the vertex", "A"),
    "a word that contains one": item("What is written?", "yesterday"),
}


@pytest.mark.parametrize("row", GUESSABLE.values(), ids=list(GUESSABLE))
def test_a_guessable_row_is_dropped_with_a_reason(row: object) -> None:
    assert guessable(GUESS, row)  # type: ignore[arg-type]


@pytest.mark.parametrize("row", NOT_GUESSABLE.values(), ids=list(NOT_GUESSABLE))
def test_a_row_that_cannot_be_guessed_is_kept(row: object) -> None:
    assert guessable(GUESS, row) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("truth", ["x=4", "[1,2]", "(3)", "3:4", "\\boxed{f(x)}"])
def test_an_answer_with_a_symbol_is_dropped_and_the_symbol_named(truth: str) -> None:
    reason = has_symbols(SYMBOLS, item(truth=truth))
    assert reason is not None
    assert any(symbol in reason.split("holds")[1] for symbol in "=[]():")


@pytest.mark.parametrize("truth", ["4", "\\boxed{4}", "\\frac{1}{2}", "12 cm^2"])
def test_a_plain_answer_is_kept(truth: str) -> None:
    assert has_symbols(SYMBOLS, item(truth=truth)) is None


def test_an_answer_may_have_20_characters_without_its_box() -> None:
    assert too_long(LENGTH, item(truth="x" * 20)) is None
    assert too_long(LENGTH, item(truth=f"\\boxed{{{'x' * 20}}}")) is None
    assert "21 characters" in (too_long(LENGTH, item(truth="x" * 21)) or "")


def test_a_box_is_removed_only_if_it_holds_the_whole_answer() -> None:
    assert answer_of(item(truth="$\\boxed{ 7 }$").sample) == "7"
    assert answer_of(item(truth="about \\boxed{7}").sample) == "about \\boxed{7}"

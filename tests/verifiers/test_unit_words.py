import string

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.verifiers.cases import sample, wrap
from vtune.verifiers import verdict_on
from vtune.verifiers.unit_words import without_unit

NOUNS = (
    *("cups", "books", "people", "dollars", "euros", "cars", "dogs", "children", "weeks", "grams", "points"),
    *(
        "apples",
        "students",
        "hours",
        "men",
        "cm",
        "cm²",
        "cm^2",
        "km/h",
        "sq. units",
        "red cups",
        "ml",
        "miles",
    ),
)
MULTIPLES = (
    "hundred",
    "thousand",
    "million",
    "billions",
    "dozen",
    "half",
    "halves",
    "thirds",
    "squared",
    "cubed",
)
JOINTS = ("or", "plus", "minus", "times", "over", "to", "of", "point", "below", "not", "divided by", "maybe")
COUNTS = ("one", "two", "eight", "twelve", "seventeen", "forty")

number = st.integers(-9999, 9999)
noun = st.sampled_from(NOUNS)
word = st.text(string.ascii_lowercase, min_size=3, max_size=9)
joint = st.sampled_from(JOINTS)
quick = settings(max_examples=60, deadline=None)


def score(answer: str, truth: str, verifier: str = "math") -> float:
    return verdict_on(wrap(answer), sample(verifier, truth)).score


@quick
@given(
    number,
    number,
    noun,
    st.sampled_from(("{} {}", "{}\\ {}", "{}~{}", "{} {}.", "**{} {}**", "\\text{{{} {}}}")),
)
def test_a_unit_behind_a_number_does_not_count(right: int, wrong: int, things: str, form: str) -> None:
    assume(right != wrong)
    assert score(form.format(right, things), str(right)) == 1.0
    assert score(form.format(wrong, things), str(right)) == 0.0


@pytest.mark.parametrize("verifier", ["math", "counting"])
@pytest.mark.parametrize("things", NOUNS)
def test_what_was_counted_may_be_named(verifier: str, things: str) -> None:
    assert score(f"7 {things}", "7", verifier) == 1.0
    assert score(f"8 {things}", "7", verifier) == 0.0


@quick
@given(
    number,
    st.sampled_from(MULTIPLES),
    noun,
    st.sampled_from(("{} {}", "{}\\text{{ {}}}", "{} \\mathrm{{{}}}")),
)
def test_a_word_that_changes_a_number_is_no_unit(value: int, change: str, things: str, form: str) -> None:
    for answer in (form.format(value, change), form.format(value, f"{change} {things}")):
        assert score(answer, str(value)) == 0.0


@quick
@given(st.integers(2, 999), joint, st.sampled_from(COUNTS), noun, st.integers(1, 999))
def test_a_second_number_is_not_dropped(
    value: int, between: str, count: str, things: str, other: int
) -> None:
    assume(between != "over" or other != 1)
    for answer in (
        *(
            f"{value} {between} {count}",
            f"{value}\\text{{ {between} {count}}}",
            f"{value} {things} {between} {count}",
        ),
        *(f"{value} {between} {other}", f"{value} {things} {other}", f"{value} {things} {between} {other}"),
    ):
        assert score(answer, str(value)) == 0.0


@quick
@given(number, word, word)
def test_only_the_number_counts_whatever_the_words(value: int, one: str, two: str) -> None:
    found = without_unit(f"{value} {one} {two}")
    assert found in (None, (str(value), f"{one} {two}"))


@quick
@given(number, joint, word)
def test_words_that_join_numbers_are_never_a_unit(value: int, between: str, things: str) -> None:
    assert without_unit(f"{value} {between} {things}") is None
    assert without_unit(f"{value} {things} {between}") is None


@pytest.mark.parametrize(
    ("answer", "truth", "right"),
    [
        ("7 centimetres", "7 cm", 1.0),
        ("7 km", "7 cm", 0.0),
        ("7 cups", "7 cm", 0.0),
        ("5 kmh", "5 km/h", 1.0),
        ("5", "5 km/h", 1.0),
        ("5 m/s", "5 km/h", 0.0),
        ("7 dollars", "$7", 1.0),
        ("7 euros", "$7", 0.0),
        ("7 cup", "7\\text{ cups}", 1.0),
        ("7 books", "7\\text{ cups}", 0.0),
        ("2\\text{ million}", "2\\text{ million}", 1.0),
        ("$7 million", "7", 0.0),
        ("1 200 cups", "1,200", 1.0),
        ("2½ cups", "2.5", 1.0),
        ("14/2 cups", "7", 1.0),
        ("7 percent", "0.07", 1.0),
        ("0.75 percent", "0.75", 0.0),
        ("10 - 3 cm", "10", 0.0),
        ("7 cm 3 mm", "7", 0.0),
        ("7 xy", "7", 0.0),
        ("$7$ cups", "7", 1.0),
        ("\\(7\\) cups", "7", 1.0),
        ("$7$ or $8$", "7", 0.0),
        ("$7$ cups, $8$ cups", "7", 0.0),
        ("7 oder acht", "7", 0.0),
        ("7 pi", "7", 0.0),
        ("7 百万", "7", 0.0),
        ("\\text{7}", "7", 1.0),
        ("\\boxed{\\text{7}}", "7", 1.0),
        ("\\mathrm{8}", "7", 0.0),
        ("\\text{7 or 8}", "7", 0.0),
    ],
)
def test_units_must_not_contradict_and_values_must_agree(answer: str, truth: str, right: float) -> None:
    assert score(answer, truth) == right

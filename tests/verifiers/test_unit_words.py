import string
import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.verifiers.cases import sample, wrap
from vtune.verifiers import verdict_on
from vtune.verifiers.unit_words import without_unit
from vtune.verifiers.units import unit

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
def test_a_unit_after_a_number_is_ignored(right: int, wrong: int, things: str, form: str) -> None:
    assume(right != wrong)
    assert score(form.format(right, things), str(right)) == 1.0
    assert score(form.format(wrong, things), str(right)) == 0.0


@pytest.mark.parametrize("verifier", ["math", "counting"])
@pytest.mark.parametrize("things", NOUNS)
def test_counted_objects_may_be_named(verifier: str, things: str) -> None:
    assert score(f"7 {things}", "7", verifier) == 1.0
    assert score(f"8 {things}", "7", verifier) == 0.0


@quick
@given(st.integers(2, 999), joint, st.sampled_from(COUNTS), noun, st.integers(1, 999))
def test_a_second_number_is_not_dropped(
    value: int, between: str, count: str, things: str, other: int
) -> None:
    assume(other not in (1, value))  # 2 over 1 equals 2, and so does the set of 2 and 2
    for answer in (
        *(
            f"{value} {between} {count}",
            f"{value}\\text{{ {between} {count}}}",
            f"{value} {things} {between} {count}",
        ),
        *(f"{value} {between} {other}", f"{value} {things} {other}", f"{value} {things} {between} {other}"),
    ):
        assert score(answer, str(value)) == 0.0


CHANGING = (
    *(
        "million",
        "billions",
        "quadrillion",
        "trilliards",
        "hundred",
        "thousands",
        "tens",
        "twenties",
        "dozen",
    ),
    *(
        "myriad",
        "scores",
        "half",
        "halfs",
        "halves",
        "thirds",
        "tenfold",
        "hundredfold",
        "doubled",
        "quadrupled",
    ),
    *("squared", "cubed", "bn", "Millionen", "Mio", "Tsd", "Milliarden", "millones", "milioni", "milhões"),
    *("miljoen", "mila", "docenas", "Dutzend", "acht", "zehn", "zwölf", "diez", "tres", "neuf", "otto"),
    *("nein", "falsch", "nope", "never", "invalid", "wrong", "niet", "jamais", "não"),
)
"""Words that change the number 7, or negate it."""


@pytest.mark.parametrize("change", [*CHANGING, "basis points", "grand total", "or eight", "not right"])
def test_words_that_change_a_number_are_wrong_in_any_formatting(change: str) -> None:
    forms = ("7 {}", "7\\text{{ {}}}", "7 \\mathrm{{{}}}", "$7$ {}", "x=7\\text{{ {}}}", "7 {}!", "7 {} cups")
    for form in forms:
        assert score(form.format(change), "7") == 0.0, form


@pytest.mark.parametrize("verifier", ["math", "counting"])
@pytest.mark.parametrize(
    "things",
    [
        *(
            "años",
            "Stück",
            "élèves",
            "tennis balls",
            "couples",
            "millionaires",
            "billiard balls",
            "pavilions",
        ),
        *("points", "sentences", "folders", "kg", "hrs", "lbs", "tonnes", "miles", "pies", "rhinos"),
    ],
)
def test_words_in_latin_letters_are_a_unit_even_before_punctuation(verifier: str, things: str) -> None:
    for form in ("7 {}", "7 {}.", "7 {}!", "7\\text{{ {}}}", "7\\text{{ {}}}!", "x = 7 {}"):
        assert score(form.format(things), "7", verifier) == 1.0, form
        assert score(form.format(things), "8", verifier) == 0.0, form


@pytest.mark.parametrize("words", ["million", "million cups", "Millionen", "dozen", "hundred"])
def test_words_of_the_truth_match_in_latex_and_plain_text(words: str) -> None:
    forms = [form.format(words) for form in ("7 {}", "7\\text{{ {}}}", "7\\,\\mathrm{{{}}}")]
    for truth in forms:
        assert [score(answer, truth) for answer in forms] == [1.0, 1.0, 1.0]
        for wrong in ("7", "7 cups", "7 billion", "8 " + words, f"8\\text{{ {words}}}"):
            assert score(wrong, truth) == 0.0, (wrong, truth)


@pytest.mark.parametrize(
    ("answer", "truth", "right"),
    [
        ("12", "12 abc", 0.0),
        ("12", "12\\,abc", 0.0),
        ("12 cups", "12 abc", 0.0),
        ("12\\,abc", "12 abc", 1.0),
        ("12 cba", "12 abc", 1.0),
        ("6 xyz", "6", 0.0),
        ("7", "7 cups", 0.0),
        ("7", "7\\text{ cups}", 1.0),
        ("7 / cups", "7\\text{ cups}", 0.0),
        ("7 cups", "7%", 0.0),
        ("7 cups", "$7", 0.0),
        ("7 cups", "\\frac{14}{2}", 1.0),
        ("7!", "7", 0.0),
        ("7!", "5040", 1.0),
        ("300\\text{ K}", "300", 1.0),
        ("300\\text{ k}", "300", 0.0),
        ("1/2", "1/2\\text{ of one cake}", 1.0),
        ("7 or 8", "\\{7, 8\\}", 1.0),
        ("7\\text{ or }8", "\\{7, 8\\}", 1.0),
    ],
)
def test_letters_of_the_truth_are_not_an_optional_unit(answer: str, truth: str, right: float) -> None:
    assert score(answer, truth) == right


def test_a_long_run_of_spaces_takes_no_time() -> None:
    for long in (f"7{' ' * 20_000}cups", f"7{' ' * 20_000}cm", f"7{'~ ' * 10_000}\\circ", f"7{' ' * 20_000}"):
        began = time.process_time()
        unit(long), without_unit(long)
        assert time.process_time() - began < 2
    assert score(f"7{' ' * 900}cups", "7") == 1.0


@quick
@given(number, number, word, word)
def test_no_words_make_a_wrong_number_correct(right: int, wrong: int, one: str, two: str) -> None:
    assume(right != wrong and "percent" not in (one, two))
    assert score(f"{wrong} {one} {two}", str(right)) == 0.0


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

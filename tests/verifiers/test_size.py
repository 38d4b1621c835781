"""Oversized expressions are refused by their text, and honest ones never are."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verifiers.cases import sample, wrap
from vtune.errors import DataError
from vtune.verifiers import check_ground_truth
from vtune.verifiers.math import LONGEST, LONGEST_TRUTH, verify_math
from vtune.verifiers.size import DEEPEST, DEEPEST_BARE, LARGEST, too_large

TOWERS = [
    "9^{9^{9^{9}}}",
    "$9^{9^{9^{9}}}$",
    "10^{10^{10}}",
    "2**2**2**2**2**2",
    "9^{9^{\\frac{9^{9}}{1}}}",
    "\\frac{1}{9^{9^{9}}}",
    "x^{9^{9^{9}}}",
    "-9^{-9^{9}}",
    "9^{−999999999}",
    "(1+1)^{1000000000}",
    "(\\frac{1}{3})^{10^{9}}",
    "\\sqrt{9}^{9^{9}}",
    "10000000000000000000000^{1000000}",
    "9^{99999}" * 15,
    "\\sin(10^{10^{8}})",
    "\\lfloor 10^{10^{9}} / 7 \\rfloor",
    "10^{10^{9}} \\mod 7",
    "x = 9^{9^{9}}",
    "(10^9)!",
    "\\left(10^{9}\\right)!",
    "1000000000!",
    "(9!)!",
    "\\{1, (10^9)!\\}",
    "999999!999999!",
    "\\Gamma(1000000000)",
    "\\binom{10^9}{5*10^8}",
    "\\binom{1000000000}{500000000}",
    "\\prod_{i=1}^{1000000000} i",
    "\\operatorname{eye}(1000000)",
    "\\operatorname{zeros}(10000, 10000)",
    "(" * 30 + "7" + ")" * 30,
    "\\sqrt{" * 31 + "7" + "}" * 31,
    "\\frac" * 100,
    "\\boxed{9^{9^{9^{9}}}}",
]

HONEST = [
    "2^{100}",
    "3^{27}",
    "100!",
    "10^{-9}",
    "e^{x^2}",
    "x^{2^n}",
    "2^{2^{10}}",
    "10^{100}",
    "3^{2024}",
    "2023^{2023}",
    "2^{1000000}",
    "1000!",
    "10000!",
    "6.02 \\times 10^{23}",
    "e^{10^{10}}",
    "x^{1000000000}",
    "(x+1)^{100}",
    "\\binom{2024}{1012}",
    "\\binom{1000000000}{2}",
    "\\binom{n}{k}",
    "n!",
    "(n!)!",
    "(2n)!",
    "\\frac{100!}{98!}",
    "\\frac12",
    "1/2",
    "-\\frac{3}{4}",
    "2\\sqrt{3}",
    "\\sqrt[3]{2}",
    "\\pi",
    "\\frac{\\pi^2}{6}",
    "e^{i\\pi}",
    "1,000,000",
    "0.000001",
    "50\\%",
    "3 cm",
    "7 \\text{ apples}",
    "\\{1, 2\\}",
    "(1, 2]",
    "[0, \\infty)",
    "x=7",
    "x^2+1",
    "\\sin(x)",
    "\\log_2 8",
    "a_{1}",
    "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
    "\\sum_{k=1}^{100} k",
    "\\int_0^1 x dx",
    "2^3^4",
    "2^{3}!",
    "4!",
    "5!!",
    "|x-1|",
    "\\lfloor 2.5 \\rfloor",
    "1 + 2 + 3",
    "\\frac{1}{1+\\frac{1}{2}}",
    "((((7))))",
    "x \\neq 3",
    "\\pm 2",
    "10^9",
    "2^{-1000}",
    "(-1)^{1000000001}",
    "1^{10^{100}}",
    "0^{10^{100}}",
    "\\operatorname{eye}(3)",
    "\\Gamma(5)",
    "\\frac{1}{\\frac{1}{\\frac{1}{7}}}",
]


@pytest.mark.parametrize("text", TOWERS)
def test_a_power_tower_scores_0_or_is_a_bad_truth_without_taking_time(
    text: str,
) -> None:
    began = time.process_time()
    verdict = verify_math(wrap(text), sample("math", "7"))
    assert (verdict.score, verdict.parts) == (0.0, {"unreadable": 1.0})
    with pytest.raises(DataError, match="the ground truth"):
        check_ground_truth(sample("math", text))
    with pytest.raises(DataError, match="the ground truth"):
        verify_math(wrap("7"), sample("math", text))
    assert time.process_time() - began < 3  # the first call imports sympy


@pytest.mark.parametrize("text", HONEST)
def test_an_honest_answer_is_evaluated(text: str) -> None:
    assert too_large(text) is None


def test_the_same_answer_with_and_without_the_guard_gets_the_same_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truths = ("7", "2^{100}", "\\frac{1}{2}", "x^2+1")
    short = [text for text in HONEST if "int" not in text and "x+1" not in text and "10^{100}" not in text]
    asked = [(text, truth) for text in short[::2] for truth in (*truths[:2], text)]
    asked = [(text, truth) for text, truth in asked if "10^{10}" not in text and "2023" not in text]
    assert len(asked) > 60

    def verdicts() -> list[object]:
        found: list[object] = []
        for text, truth in asked:
            try:
                found.append(verify_math(wrap(text), sample("math", truth)))
            except DataError as error:
                found.append(error.what)
        return found

    guarded = verdicts()
    monkeypatch.setattr("vtune.verifiers.math.too_large", lambda text: None)
    assert verdicts() == guarded
    assert any(getattr(one, "score", 0) == 1.0 for one in guarded)


def test_the_limit_is_in_digits() -> None:
    assert too_large(f"10^{{{LARGEST - 1}}}") is None
    assert too_large(f"10^{{{LARGEST + 1}}}") is not None
    assert too_large("205000!") is None  # 999,000 digits
    assert too_large("206000!") is not None
    assert too_large("9!!") is not None  # math-verify reads it as (9!)!: 1.9 million digits
    assert too_large("(" * DEEPEST_BARE + ")" * DEEPEST_BARE) is None
    assert too_large("(" * (DEEPEST_BARE + 2)) is not None
    assert too_large("\\sqrt{" * (DEEPEST - 1)) is None
    assert too_large("\\sqrt{" * (DEEPEST + 1)) is not None


def test_an_oversized_ground_truth_is_an_error() -> None:
    with pytest.raises(DataError, match="characters"):
        check_ground_truth(sample("math", "1+" * LONGEST_TRUTH + "1"))


SMALL = st.integers(0, 99).map(str)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map("".join),
        inner.map("\\sqrt{{{}}}".format),
        st.tuples(inner, inner).map(lambda two: f"\\frac{{{two[0]}}}{{{two[1]}}}"),
        inner.map("({})".format),
    )


EXPRESSIONS = st.recursive(SMALL | st.sampled_from("xynk"), _larger, max_leaves=8)


@given(EXPRESSIONS, st.integers(0, 999))
def test_sums_fractions_roots_and_powers_by_small_numbers_are_never_refused(text: str, power: int) -> None:
    assert too_large(text) is None
    assert too_large(f"({text})^{{{power}}}") is None


@given(EXPRESSIONS, st.sampled_from([tower for tower in TOWERS if tower.count("(") < 9]))
def test_a_power_tower_is_found_anywhere(text: str, tower: str) -> None:
    tower = tower.strip("$").removeprefix("x = ")
    if too_large(f"({tower})") is None:  # e.g. a product, whose numbers belong to the surrounding expression
        return
    assert too_large(f"{text}+({tower})") is not None
    assert too_large(f"\\frac{{{text}}}{{{tower}}}") is not None
    assert too_large(f"\\{{{text}, ({tower})\\}}") is not None


PIECES = [
    *"0189^{}()[]!/*+-_|,.=xe <",
    "**",
    "\\frac",
    "\\sqrt",
    "\\binom",
    "\\pi",
    "\\Gamma",
    "\\operatorname",
    "{eye}",
    "\\left",
    "\\prod",
    "\\",
    "\\\\",
    "\\{",
    "\\}",
    "\\text",
    "é",
    "٣",
    "²",
    "\x00",
    "\ud800",
]


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    why = too_large(text)
    assert why is None or why.split()[0] in {"holds", "nests", "multiplies", "builds"}


@pytest.mark.parametrize("piece", ["(1+1)^2*", "a", "1,", "\\frac12", "9^", "{", "!"])
def test_the_longest_answer_is_read_quickly(piece: str) -> None:
    text = (piece * LONGEST)[:LONGEST]
    began = time.process_time()
    too_large(text)
    assert time.process_time() - began < 0.5

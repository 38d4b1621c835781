"""Which answers count as one number, and so are compared by value."""

import pytest

from tests.verifiers.cases import sample
from vtune.verifiers.latex import is_formula, is_number
from vtune.verifiers.math import check_math


@pytest.mark.parametrize(
    "truth",
    ["7", "-7", "−7", ".35", "1,000", "3/4", r"\frac{1}{2}", "2^{-3}", "2^3-1", r"\sqrt{3}-1", "$35$", "90°"],
)
def test_one_number_in_any_spelling_is_a_number(truth: str) -> None:
    assert is_number(truth)


@pytest.mark.parametrize(
    "truth",
    [
        "5-7",
        "1,000-2,000",
        "1,000 - 1,500",
        "1,000–2,000",
        "10^3-10^4",
        "10^{3} - 10^{4}",
        "1.2.3",
        "10:30",
        "x",
    ],
)
def test_ranges_and_other_texts_are_not_numbers(truth: str) -> None:
    assert not is_number(truth)


@pytest.mark.parametrize(
    "truth",
    [
        "$y=-x^{2}+8x-15$",
        "y = \\frac{1}{2} x + 3",
        "f(x)=x^2",
        "x=2,y=-1",
        "x \\ne 3",
        "0 < x < 4",
        "AB = CD",
        "y=ax+b",
        "|x|=3",
        "2x+3",
        "25π",
        "14√3",
        "r = 2 \\cos 3\\theta",
        "120^{\\circ}, 60^{\\circ}",
        "(-3, 4)",
        "(-2,3]",
        "[2, \\infty)",
        "[0, 2, 4]",
    ],
)
def test_a_formula_is_one_that_math_verify_reads(truth: str) -> None:
    assert is_formula(truth)
    check_math(sample("math", truth))


@pytest.mark.parametrize(
    "truth",
    [
        *(
            "no",
            "A",
            "A, B",
            "(A)",
            "x-axis",
            "parallelogram",
            "(left, right)",
            "5 cm",
            "10:30",
            "CO_2",
            "Fe^{2+}",
        ),
        *(
            "x=3 or x=4",
            "\\text{no}",
            "2^{nd}",
            "30°, 60°",
            "y = t",
            "x=",
            "\\frac{1}{",
            "\\sqrt{}",
            "\\left",
            "",
        ),
    ],
)
def test_words_units_and_what_math_verify_cannot_read_are_not_formulas(truth: str) -> None:
    assert not is_formula(truth)

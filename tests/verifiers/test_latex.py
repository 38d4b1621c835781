"""Which answers count as one number, and so are compared by value."""

import pytest

from vtune.verifiers.latex import is_number


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

"""Intervals for proportions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from vtune.metrics.proportion import wilson


@given(st.integers(1, 10_000), st.data())
def test_the_interval_contains_the_share_and_stays_between_0_and_1(of: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, of))
    low, high = wilson(count, of)
    assert 0 <= low <= count / of + 1e-9
    assert count / of - 1e-9 <= high <= 1


def test_zero_of_ten_may_still_be_a_quarter() -> None:
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)


@given(st.integers(1, 500), st.data())
def test_the_interval_matches_scipy(of: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, of))
    theirs = binomtest(count, of).proportion_ci(method="wilson")
    assert wilson(count, of) == pytest.approx((theirs.low, theirs.high), abs=1e-12)

from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.metrics.falls import largest_fall


@pytest.mark.parametrize(
    ("values", "window", "fall"),
    [
        ([0.1, 0.2, 0.9], 1, 0.0),
        ([0.5, 0.9, 0.3, 0.8, 0.4], 1, 0.6),
        ([0.5, 0.9, 0.3, 0.8, 0.1], 1, 0.8),
        ([0.8, 0.6, 0.2, 0.4], 2, 0.4),  # means 0.7, 0.4, 0.3
        ([0.9, 0.1], 5, 0.0),  # one mean
    ],
)
def test_the_fall_matches_a_hand_calculation(values: list[float], window: int, fall: float) -> None:
    assert largest_fall(values, window) == pytest.approx(fall)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.integers(1, 6))
def test_the_fall_is_that_of_the_worst_pair(values: list[float], window: int) -> None:
    starts = range(max(1, len(values) - window + 1))
    means = [fmean(values[start : start + window]) for start in starts]
    pairs = [means[i] - means[j] for i in starts for j in starts if i <= j]
    assert largest_fall(values, window) == pytest.approx(max(0.0, *pairs))

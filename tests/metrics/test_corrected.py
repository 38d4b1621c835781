import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.metrics.corrected import Confusion, corrected, interval

JUDGES = 2_000
TIMES = 200
"""Simulations per judge."""
RATES = (0.6, 0.7, 0.8, 0.9, 0.97)
PREVALENCE = (0.05, 0.2, 0.4, 0.6, 0.8, 0.95)
SIZES = ((60, 30, 30), (200, 100, 100), (500, 150, 60), (1000, 60, 150))
"""Numbers of judged items, known positives and known negatives."""


def coverage() -> tuple[np.ndarray, np.ndarray]:
    """(JUDGES, 6): sensitivity, specificity, prevalence, sizes; and the coverage of the interval."""
    draw = np.random.default_rng(0)
    grid = [(*cell, *size) for *cell, size in itertools.product(RATES, RATES, PREVALENCE, SIZES)]
    judges = np.array([grid[number] for number in draw.integers(0, len(grid), JUDGES)])
    s, c, x, of, yes, no = (column[None] for column in judges.T)
    shape = (TIMES, JUDGES)
    said = draw.binomial(of.astype(int), x * s + (1 - x) * (1 - c), shape)
    hits, rejections = (draw.binomial(n.astype(int), rate, shape) for n, rate in ((yes, s), (no, c)))
    columns = np.broadcast_arrays(said, of, hits, yes, rejections, no)
    low, high = interval(*(np.asarray(one, np.float64).ravel() for one in columns))
    inside = (low <= x.repeat(TIMES, 0).ravel() + 1e-9) & (x.repeat(TIMES, 0).ravel() - 1e-9 <= high)
    return judges, inside.reshape(shape).mean(axis=0)


def test_the_interval_covers_the_share_in_93_to_97_percent_over_2000_judges() -> None:
    judges, found = coverage()
    assert len(found) == JUDGES
    assert 0.93 <= found.mean() <= 0.97
    for column, values in enumerate((RATES, RATES, PREVALENCE, [size[0] for size in SIZES])):
        for value in values:
            assert 0.93 <= found[judges[:, column] == value].mean() <= 0.97, (column, value)
    assert np.quantile(found, 0.05) > 0.91


def test_a_judge_that_never_erred_leaves_the_share_unchanged() -> None:
    found = corrected(30, 100, Confusion(hits=500, misses=0, false_alarms=0, rejections=500))
    assert found is not None
    assert found.share is not None
    assert found.share.value == pytest.approx(found.apparent) == pytest.approx(0.3)
    assert found.share.low == pytest.approx(0.22, abs=0.02)
    assert found.share.high == pytest.approx(0.40, abs=0.02)


def test_false_alarms_of_the_judge_are_subtracted() -> None:
    # The judge says 60 %: 0.9 x + 0.3 (1 - x) = 0.6, so x = 0.5.
    found = corrected(600, 1000, Confusion(hits=90, misses=10, false_alarms=30, rejections=70))
    assert found is not None
    assert found.share is not None
    assert found.share.value == pytest.approx(0.5)
    assert found.youden == pytest.approx(0.6)
    assert found.share.low is not None
    assert found.share.low < 0.5 - 0.05


def test_the_interval_includes_the_uncertainty_about_the_judge() -> None:
    def width(times: int) -> float:
        known = Confusion(hits=9 * times, misses=times, false_alarms=2 * times, rejections=8 * times)
        found = corrected(500, 1000, known)
        assert found is not None
        assert found.share is not None
        assert found.share.high is not None
        assert found.share.low is not None
        return found.share.high - found.share.low

    assert width(2) > 1.5 * width(20) > 1.5 * width(200)


def test_a_random_judge_says_nothing_about_the_share() -> None:
    found = corrected(50, 100, Confusion(hits=50, misses=50, false_alarms=50, rejections=50))
    assert found is not None
    assert found.share is None
    assert found.youden == 0.0
    barely = corrected(50, 100, Confusion(hits=52, misses=48, false_alarms=50, rejections=50))
    assert barely is not None
    assert barely.share is not None
    assert (barely.share.low, barely.share.high) == (0.0, 1.0)


@pytest.mark.parametrize(
    "known",
    [
        Confusion(hits=0, misses=0, false_alarms=3, rejections=4),
        Confusion(hits=3, misses=1, false_alarms=0, rejections=0),
    ],
)
def test_without_calibration_there_is_no_correction(known: Confusion) -> None:
    assert corrected(5, 10, known) is None
    assert corrected(0, 0, Confusion(hits=1, misses=1, false_alarms=1, rejections=1)) is None


COUNTS = st.integers(0, 400)


@given(said=COUNTS, more=COUNTS, hits=COUNTS, misses=COUNTS, alarms=COUNTS, rejections=COUNTS)
def test_interval_ends_are_ordered_and_between_0_and_1(
    said: int, more: int, hits: int, misses: int, alarms: int, rejections: int
) -> None:
    known = Confusion(hits=hits, misses=misses, false_alarms=alarms, rejections=rejections)
    found = corrected(said, said + more, known)
    if found is None or found.share is None:
        return
    assert found.share.low is not None
    assert found.share.high is not None
    assert 0 <= found.share.low <= found.share.value <= found.share.high <= 1
    assert found.youden_low < found.youden

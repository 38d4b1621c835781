"""Intervals for clustered observations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.metrics.intervals import Estimate, mean, share
from vtune.metrics.proportion import wilson


def ends(found: Estimate | None) -> tuple[float, float]:
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


def questions(count: int, rollouts: int = 1) -> list[str]:
    return [f"q{number}" for number in range(count) for _ in range(rollouts)]


@pytest.mark.parametrize("right", [0, 1, 40, 92])
def test_single_trials_have_the_wilson_interval(right: int) -> None:
    found = share(questions(92), [1.0] * right + [0.0] * (92 - right))
    assert found is not None
    assert found.value == pytest.approx(right / 92)
    assert ends(found) == pytest.approx(wilson(right, 92))


def test_zero_of_92_has_an_interval_above_0() -> None:
    for rollouts in (1, 4):
        found = share(questions(92, rollouts), [0.0] * 92 * rollouts)
        assert found is not None
        assert (found.value, *ends(found)) == pytest.approx((0.0, 0.0, 0.0401), abs=1e-4)


def test_a_single_cluster_gives_a_very_wide_interval() -> None:
    low, high = ends(share(["one picture"] * 1000, [1.0] * 600 + [0.0] * 400))
    assert high - low > 0.8


def test_a_large_cluster_has_weight_by_size_and_counts_once() -> None:
    clusters = ["large"] * 90 + questions(10)
    low, high = ends(share(clusters, [1.0] * 90 + [0.0] * 10))
    assert high - low > 0.6


@given(st.lists(st.sampled_from([0.0, 0.3, 0.5, 1.0]), min_size=1, max_size=30), st.integers(2, 5))
def test_identical_rollouts_give_the_interval_of_one(scores: list[float], rollouts: int) -> None:
    one = share(questions(len(scores)), scores)
    many = share(questions(len(scores), rollouts), np.repeat(scores, rollouts))
    assert one is not None
    assert many is not None
    assert many.value == pytest.approx(one.value)
    assert ends(many) == pytest.approx(ends(one))


@given(
    st.lists(st.tuples(st.sampled_from("abcdefghijkl"), st.sampled_from([0.0, 0.5, 1.0])), max_size=40),
    st.randoms(use_true_random=False),
)
def test_the_interval_contains_the_share_stays_below_1_and_ignores_order(
    rows: list[tuple[str, float]], random: object
) -> None:
    found = share([name for name, _ in rows], [score for _, score in rows])
    if not rows:
        assert found is None
        return
    low, high = ends(found)
    assert found is not None
    assert 0 <= low <= found.value <= high <= 1
    assert found.value == pytest.approx(np.mean([score for _, score in rows]))
    random.shuffle(rows)  # type: ignore[attr-defined]
    again = share([name for name, _ in rows], [score for _, score in rows])
    assert ends(again) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("count", "rollouts", "skills"),
    [(20, 4, (2, 1)), (20, 4, (9, 1)), (92, 4, (0.1, 3)), (100, 8, (0.5, 0.5)), (8, 4, (2, 2))],
)
def test_the_interval_covers_the_truth_in_95_percent(
    count: int, rollouts: int, skills: tuple[float, float]
) -> None:
    """If four rollouts of a question counted as four questions, it would be 64 to 93 of 100."""
    draw = np.random.default_rng(1)
    truth = skills[0] / sum(skills)
    held = 0
    for _ in range(300):
        scores = draw.binomial(1, draw.beta(*skills, size=(count, 1)), size=(count, rollouts))
        low, high = ends(share(questions(count, rollouts), scores.ravel()))
        held += low <= truth <= high
    assert held / 300 >= 0.92


def test_questions_with_mixed_rollouts_are_not_treated_as_trials() -> None:
    """Eight of twelve questions with four rollouts are half right: t gives ± 0.13, Wilson's ± 0.25."""
    scores = np.array([0.5] * 8 + [0.25, 0.25, 0.75, 1.0])
    low, high = ends(share(questions(12), scores))
    half = 2.201 * scores.std(ddof=1) / 12**0.5
    assert (high - low) / 2 == pytest.approx(half, rel=0.2)


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_identical_clusters_still_have_an_interval(value: float) -> None:
    low, high = ends(share(questions(12, 4), [value] * 48))
    assert (low, high) == pytest.approx(wilson(12 * value, 12))


@pytest.mark.parametrize(("count", "rollouts"), [(8, 2), (8, 4), (12, 2), (12, 4)])
def test_intervals_of_half_right_questions_cover_the_truth_in_95_percent(count: int, rollouts: int) -> None:
    draw = np.random.default_rng(2)
    held = 0
    for _ in range(300):
        scores = draw.binomial(rollouts, 0.5, size=count) / rollouts
        low, high = ends(share(questions(count), scores))
        held += low <= 0.5 <= high
    assert held / 300 >= 0.92


@pytest.mark.parametrize(("count", "rare"), [(92, 0.035), (40, 0.08)])
def test_intervals_of_mostly_half_right_questions_cover_the_truth_in_95_percent(
    count: int, rare: float
) -> None:
    """Plain resampling covers it in 85 and 88 of 100, as only two or three clusters differ."""
    draw = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        low, high = ends(share(questions(count), np.where(draw.random(count) < rare, 1.0, 0.5)))
        held += low <= 0.5 + rare / 2 <= high
    assert held / 200 >= 0.93


def test_shares_that_differ_only_by_rounding_are_equal() -> None:
    noisy = share(questions(92), np.where(np.arange(92) % 2, 0.1428571, 0.1428572))
    assert ends(noisy) == pytest.approx(ends(share(questions(92), [1 / 7] * 92)), abs=1e-6)


def test_parts_of_fixed_size_are_resampled_separately() -> None:
    names = [*questions(100), *(f"other/{name}" for name in questions(100))]
    scores = [0.9, 1.0] * 50 + [0.1, 0.0] * 50
    parts = ["easy"] * 100 + ["hard"] * 100
    apart, together = ends(share(names, scores, strata=parts)), ends(share(names, scores))
    # The part of a question explains all variation, so resampling must keep the part sizes fixed.
    assert apart[1] - apart[0] < 0.2 * (together[1] - together[0])


def test_parts_that_share_some_clusters_keep_their_weights() -> None:
    """Every second picture is in both the easy and the hard part; this must not change the parts' weights."""
    names = [*questions(100), *(f"q{n}" if n % 2 else f"other/{n}" for n in range(100))]
    scores = [0.9, 1.0] * 50 + [0.1, 0.0] * 50
    low, high = ends(share(names, scores, strata=["easy"] * 100 + ["hard"] * 100))
    assert high - low < 0.03


def test_clusters_without_weight_do_not_count() -> None:
    found = share(questions(4), [1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0])
    assert found == share(questions(2), [1.0, 0.0])
    assert share(questions(2), [0.0, 0.0], [0.0, 0.0]) is None


def test_a_mean_of_equal_values_has_no_interval() -> None:
    assert mean(questions(5), [2.0] * 5) == Estimate(2.0, None, None)
    assert mean([], []) is None
    assert mean(["one"] * 3, [1.0, 2.0, 3.0]) == Estimate(2.0, None, None)
    values = np.arange(100.0)
    low, high = ends(mean(questions(100), values))
    half = 1.984 * values.std(ddof=1) / 10
    assert (low, high) == pytest.approx((49.5 - half, 49.5 + half), abs=0.6)

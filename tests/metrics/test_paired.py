"""Two evaluations on the same questions."""

import random
from collections.abc import Sequence
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtune.metrics.paired import Pair, holm, mcnemar, paired, sign_flips


def pairs(both: int, only_a: int, only_b: int, neither: int) -> list[Pair]:
    """Independent questions that are right or wrong."""
    kinds = [(1.0, 1.0)] * both + [(1.0, 0.0)] * only_a + [(0.0, 1.0)] * only_b + [(0.0, 0.0)] * neither
    return [Pair(f"q{number}", a, b) for number, (a, b) in enumerate(kinds)]


def turned(rows: Sequence[Pair]) -> list[Pair]:
    return [Pair(pair.cluster, pair.b, pair.a) for pair in rows]


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"),
    [
        (0, 0, 1.0),
        (0, 5, 2 / 2**5),
        (0, 6, 2 / 2**6),
        (1, 9, 2 * (comb(10, 0) + comb(10, 1)) / 2**10),
        (2, 8, 2 * (comb(10, 0) + comb(10, 1) + comb(10, 2)) / 2**10),
        (4, 4, 1.0),
    ],
)
def test_mcnemar_matches_a_hand_calculation(only_a: int, only_b: int, p: float) -> None:
    found = paired(pairs(3, only_a, only_b, 4))
    assert (found.test, found.better_a, found.better_b) == ("exact McNemar", only_a, only_b)
    assert found.p == pytest.approx(p)
    # For independent questions, random sign flips give the same test.
    less = np.array([0.0] * 7 + [-1.0] * only_a + [1.0] * only_b)
    assert sign_flips(less) == pytest.approx(p) == mcnemar(less)


def test_differing_clusters_are_counted() -> None:
    sizes = (1, 2, 1, 1, 1, 1, 10)
    rows = [Pair(f"c{number}", 0.0, 1.0) for number, size in enumerate(sizes) for _ in range(size)]
    found = paired([*rows, Pair("c9", 1.0, 1.0)])
    assert (found.differing, found.clusters, found.better_b) == (7, 8, 17)


def test_sampled_sign_flips_come_close_to_the_exact_test() -> None:
    for won, lost in ((30, 18), (31, 14), (24, 24)):
        less = np.array([1.0] * won + [-1.0] * lost)
        assert sign_flips(less) == pytest.approx(mcnemar(less), abs=0.004)
        assert sign_flips(less) == sign_flips(-less)


SCORES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
ROWS = st.lists(st.builds(Pair, st.sampled_from("abcdefghijklmnop"), SCORES, SCORES), min_size=1, max_size=60)


@settings(max_examples=200)
@given(ROWS, st.integers(0, 9))
def test_swapping_the_evaluations_swaps_everything(rows: list[Pair], seed: int) -> None:
    found, other = paired(rows), paired(turned(rows))
    assert (found.a, found.b, found.better_a, found.better_b) == (
        other.b,
        other.a,
        other.better_b,
        other.better_a,
    )
    ends = (other.difference.value, other.difference.high, other.difference.low)
    assert (found.difference.value, found.difference.low, found.difference.high) == pytest.approx(
        [-end for end in ends if end is not None]
    )
    assert (found.p, found.detectable) == pytest.approx((other.p, other.detectable))
    random.Random(seed).shuffle(rows)
    assert paired(rows).difference == found.difference


@given(ROWS)
def test_the_interval_contains_the_difference_and_stays_within_1(rows: list[Pair]) -> None:
    found = paired(rows)
    low, high = found.difference.low, found.difference.high
    assert low is not None
    assert high is not None
    assert -1 <= low <= found.difference.value + 1e-9
    assert found.difference.value - 1e-9 <= high <= 1
    assert 0 < found.p <= 1
    assert found.difference.value == pytest.approx(found.b - found.a)


def test_two_evaluations_that_never_differ_still_have_an_interval() -> None:
    found = paired(pairs(80, 0, 0, 12))
    assert (found.difference.value, found.p) == (0.0, 1.0)
    assert found.difference.high == pytest.approx(-(found.difference.low or 0))
    assert found.difference.high == pytest.approx(0.0401, abs=1e-4)


def test_equal_gains_do_not_get_a_binomial_interval() -> None:
    """Eight of twelve questions with four rollouts gain one: t gives 12.5 ± 12.7 points, Wilson's ± 28."""
    less = np.array([0.25] * 8 + [0.0] * 2 + [-0.25] * 2)
    found = paired([Pair(f"q{number}", 0.5, 0.5 + one) for number, one in enumerate(less)]).difference
    assert found.low is not None
    assert found.high is not None
    half = 2.201 * less.std(ddof=1) / 12**0.5
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.2)


def test_intervals_of_equal_gains_cover_the_truth_in_95_percent() -> None:
    draw = np.random.default_rng(4)
    held = 0
    for _ in range(300):
        less = draw.choice([0.25, 0.0, -0.25], p=[0.7, 0.2, 0.1], size=12)
        found = paired([Pair(f"q{number}", 0.5, 0.5 + one) for number, one in enumerate(less)]).difference
        held += (found.low or 0.0) <= 0.15 <= (found.high or 0.0)
    assert held / 300 >= 0.92


def test_intervals_of_mostly_equal_gains_cover_the_truth_in_95_percent() -> None:
    """Nearly all of 92 gain a quarter, a few lose a half; plain resampling covers the truth in 88 of 100."""
    draw = np.random.default_rng(6)
    held = 0
    for _ in range(200):
        lost = draw.random(92) < 0.035
        found = paired([Pair(f"q{n}", 0.5, 0.0 if one else 0.75) for n, one in enumerate(lost)]).difference
        held += (found.low or 0.0) <= 0.25 - 0.75 * 0.035 <= (found.high or 0.0)
    assert held / 200 >= 0.93


def test_rotations_of_a_question_do_not_count_as_four_questions() -> None:
    alone = [Pair(f"q{n}", 0.0, float(n < 8)) for n in range(50)]
    rotated = [pair for pair in alone for _ in range(4)]
    apart = [Pair(f"{pair.cluster}/{n}", pair.a, pair.b) for n, pair in enumerate(rotated)]
    one, four, sixteen = paired(alone), paired(rotated), paired(apart)
    assert (four.n, four.clusters) == (200, 50)
    assert four.p == pytest.approx(one.p) == pytest.approx(2 / 2**8)
    assert sixteen.p < 1e-8
    assert four.detectable == pytest.approx(one.detectable)
    assert four.difference.low == pytest.approx(one.difference.low)


def test_without_a_difference_one_in_twenty_comparisons_is_significant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the interval covers the truth in 95 of 100: 120 questions with four rollouts each."""
    monkeypatch.setattr("vtune.metrics.paired.FLIPS", 2000)
    draw = np.random.default_rng(3)
    said = held = 0
    runs = 300
    for _ in range(runs):
        skill = draw.beta(1.0, 1.0, size=120)
        a, b = (draw.binomial(4, skill) / 4 for _ in range(2))
        found = paired([Pair(f"q{n}", x, y) for n, (x, y) in enumerate(zip(a, b, strict=True))])
        said += found.p < 0.05
        held += (found.difference.low or 0) <= 0 <= (found.difference.high or 0)
    assert said / runs == pytest.approx(0.05, abs=0.03)
    assert held / runs == pytest.approx(0.95, abs=0.03)


def test_holm_matches_a_hand_calculation() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert holm({"a": 0.6, "b": 0.7}) == pytest.approx({"a": 1.0, "b": 1.0})
    assert holm({}) == {}

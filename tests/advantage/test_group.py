import random
from statistics import stdev
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.advantage.group import Baseline, group_advantages, has_signal, overlong_penalty

BASELINES = get_args(Baseline)
EVERY = pytest.mark.parametrize("baseline", BASELINES)
ROWS = st.lists(
    st.tuples(st.one_of(st.none(), st.floats(-2, 2).map(lambda x: round(x, 3))), st.integers(0, 3))
)
Rows = list[tuple[float | None, int]]


def of(rows: Rows, baseline: Baseline) -> list[float | None]:
    return group_advantages([reward for reward, _ in rows], [group for _, group in rows], baseline=baseline)


def test_group_mean_subtracts_the_mean_reward() -> None:
    rewards, groups = [1.0, 5.0, 0.0, None, 7.0], ["a", "b", "a", "a", "b"]
    assert group_advantages(rewards, groups, baseline="group_mean") == [0.5, -1.0, -0.5, None, 1.0]


def test_group_std_divides_by_the_unbiased_deviation() -> None:
    advantages = group_advantages([1.0, 2.0, 6.0], [0, 0, 0], baseline="group_std")
    assert advantages == pytest.approx([x / (stdev([1, 2, 6]) + 1e-6) for x in (-2, -1, 3)])


@EVERY
def test_a_lone_reward_gives_no_advantage(baseline: Baseline) -> None:
    assert group_advantages([0.7, None, 0.3, 0.3], [0, 0, 1, 1], baseline=baseline) == [0.0, None, 0.0, 0.0]


@EVERY
def test_equal_rewards_give_no_advantage_despite_rounding(baseline: Baseline) -> None:
    assert group_advantages([0.1] * 3, [0] * 3, baseline=baseline) == [0.0] * 3


@EVERY
def test_different_lengths_are_refused(baseline: Baseline) -> None:
    with pytest.raises(ValueError, match="zip"):
        group_advantages([1.0], [0, 0], baseline=baseline)


@EVERY
@given(rows=ROWS)
def test_a_group_sums_to_zero_and_unscored_stays_unscored(baseline: Baseline, rows: Rows) -> None:
    advantages = of(rows, baseline)
    assert [a is None for a in advantages] == [reward is None for reward, _ in rows]
    for group in range(4):
        members = [a for a, (_, g) in zip(advantages, rows, strict=True) if g == group and a is not None]
        assert sum(members) == pytest.approx(0, abs=1e-6)


@EVERY
@given(rows=ROWS, shift=st.floats(-5, 5).map(lambda x: round(x, 3)))
def test_a_constant_added_to_all_rewards_changes_nothing(
    baseline: Baseline, rows: Rows, shift: float
) -> None:
    moved = [(None if reward is None else reward + shift, group) for reward, group in rows]
    for before, after in zip(of(rows, baseline), of(moved, baseline), strict=True):
        assert before == after == None or after == pytest.approx(before, abs=1e-5)  # noqa: E711


@EVERY
@given(rows=ROWS, seed=st.integers(0, 99))
def test_the_order_of_trajectories_does_not_matter(baseline: Baseline, rows: Rows, seed: int) -> None:
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    straight, mixed = of(rows, baseline), of([rows[i] for i in order], baseline)
    for place, i in enumerate(order):
        assert (mixed[place] is None) == (straight[i] is None)
        assert mixed[place] is None or mixed[place] == pytest.approx(straight[i], abs=1e-6)


def test_a_group_has_signal_if_two_scored_rewards_differ() -> None:
    assert has_signal([0.0, 1.0, None])
    assert has_signal([0.5, 0.6])
    for silent in ([], [None, None], [1.0, None], [0.3, 0.3], [0.1 + 0.2, 0.3]):
        assert not has_signal(silent)


@EVERY
@given(rows=ROWS)
def test_only_groups_with_signal_have_advantages(baseline: Baseline, rows: Rows) -> None:
    advantages = of(rows, baseline)
    for group in range(4):
        rewards = [reward for reward, g in rows if g == group]
        mine = [a for a, (_, g) in zip(advantages, rows, strict=True) if g == group and a is not None]
        assert has_signal(rewards) == any(abs(a) > 1e-6 for a in mine)


def test_the_overlong_penalty_grows_through_the_buffer_up_to_the_limit() -> None:
    def penalty(tokens: int) -> float:
        return overlong_penalty(tokens, limit=100, buffer=20, factor=0.5)

    assert [penalty(n) for n in (0, 80, 85, 90, 100, 1000)] == pytest.approx(
        [0, 0, -0.125, -0.25, -0.5, -0.5]
    )

"""Group-relative advantages: how a trajectory did compared with the rest of its group."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal

Baseline = Literal["group_mean", "group_std"]

EPSILON = 1e-6
"""Added to the standard deviation, as verl's GRPO does."""


def group_advantages(
    rewards: Sequence[float | None], groups: Sequence[int | str], *, baseline: Baseline
) -> list[float | None]:
    """The advantage of each trajectory relative to the rest of its group.

    Args:
        rewards: Total reward of each trajectory, shape (N,). None means unscored, which says nothing about
            the trajectory.
        groups: The group of each trajectory, shape (N,), in any order.
        baseline: `group_mean`: reward minus the mean of the group (CodeV §4.3, A = R − b). `group_std`: the
            same, divided by the group's unbiased standard deviation + 1e-6 (GRPO).

    Returns:
        Advantages, shape (N,), in reward units (`group_mean`) or standard deviations (`group_std`). None
        stays None, is left out of the mean and must be left out of the loss. A trajectory without a
        scored sibling gets 0, since there is nothing to compare it with; so do all in a group whose rewards
        are equal (`has_signal`), where rounding would otherwise leave a sign.

    Raises:
        ValueError: If the two sequences differ in length.
    """
    scored: dict[int | str, list[float]] = defaultdict(list)
    for reward, group in zip(rewards, groups, strict=True):
        if reward is not None:
            scored[group].append(reward)
    telling = {group: values for group, values in scored.items() if has_signal(values)}
    mean = {group: fmean(values) for group, values in telling.items()}
    scale = {group: _scale(values, baseline) for group, values in telling.items()}

    def advantage(reward: float, group: int | str) -> float:
        return (reward - mean[group]) / scale[group] if group in telling else 0.0

    return [
        None if reward is None else advantage(reward, group)
        for reward, group in zip(rewards, groups, strict=True)
    ]


def has_signal(rewards: Sequence[float | None]) -> bool:
    """Whether a group's rewards differ, so that some of its trajectories have an advantage.

    DAPO's filter (Yu et al. 2025, "Dynamic Sampling"), applied to the rewards that advantages are based on.

    Args:
        rewards: Those of one group; unscored ones (None) are ignored.
    """
    scored = [reward for reward in rewards if reward is not None]
    return bool(scored) and max(scored) - min(scored) > EPSILON


def overlong_penalty(tokens: int, *, limit: int, buffer: int, factor: float) -> float:
    """The amount added to the reward of a long reply: 0 up to limit - buffer, then falling to -factor.

    Args:
        tokens: Number of tokens that the policy sampled.
        limit: Length from which the full penalty applies.
        buffer: Number of tokens before the limit over which it grows.
        factor: The full penalty, in reward units.

    Source: DAPO, Yu et al. 2025, "Overlong Reward Shaping" (its soft punishment), times a factor as in its
    code.
    """
    over = tokens - (limit - buffer)
    return -factor * min(max(over / buffer, 0.0), 1.0)


def _scale(values: Sequence[float], baseline: Baseline) -> float:
    if baseline == "group_mean" or len(values) < 2:
        return 1.0
    return stdev(values) + EPSILON

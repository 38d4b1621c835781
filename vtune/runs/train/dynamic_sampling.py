"""Dynamic sampling: zero-variance groups teach nothing, and are replaced by groups of the next prompts."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from vtune.advantage.group import has_signal
from vtune.schema.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class StepGroups:
    """This process's rollouts of one step."""

    trajectories: list[Trajectory]
    """All that were generated, in order and scored."""
    kept: frozenset[int]
    """Groups to learn from; always as many as a step has."""
    taken: int
    """Prompts that this process has used in the whole run, including these."""
    groups: int
    """Number of groups that were generated."""
    zero_variance: int
    """Number of those with zero variance: their rewards exist and are all equal."""


class DynamicSampling:
    """Generates the groups of one step after another.

    DAPO §3.2: a group whose rewards are all equal has no advantage to learn from, so it is replaced by a
    group of the next prompt. Every process takes the next of its own prompts, so none waits for another, and
    the next step begins where this one ended. If groups are still missing after `rounds` more rounds,
    zero-variance groups take their place, the earliest first: a step always has the same number of rollouts.
    An unscored group is not replaced: the next one would meet the same judge.

    Args:
        draw: (step, numbers of this process's prompts) -> their scored rollouts.
        rewards: The values that advantages are computed from, one per trajectory; None: unscored.
        share: Groups per step in this process.
        rounds: Number of rounds after the first.
        taken: Number of prompts that this process has used before.
    """

    def __init__(
        self,
        draw: Callable[[int, range], Awaitable[list[Trajectory]]],
        rewards: Callable[[Sequence[Trajectory]], list[float | None]],
        *,
        share: int,
        rounds: int,
        taken: int,
    ) -> None:
        self._draw = draw
        self._rewards = rewards
        self._share = share
        self._rounds = rounds
        self._taken = taken
        self._turn = asyncio.Lock()

    async def of(self, step: int) -> StepGroups:
        """The rollouts of a step; steps are requested in order, each once.

        Several steps may be generated at the same time, but one after the other if groups are replaced: a
        step's replacements come before the next step's prompts.
        """
        if not self._rounds:
            return await self._groups(step)
        async with self._turn:
            return await self._groups(step)

    async def _groups(self, step: int) -> StepGroups:
        found: list[Trajectory] = []
        kept: list[int] = []
        zero_variance: list[int] = []
        taken = self._taken
        for _ in range(1 + self._rounds):
            missing = self._share - len(kept)
            if missing == 0:
                break
            numbers = range(self._taken, self._taken + missing)
            self._taken = taken = numbers.stop
            drawn = await self._draw(step, numbers)
            found += drawn
            rewards: dict[int, list[float | None]] = {}
            for trajectory, reward in zip(drawn, self._rewards(drawn), strict=True):
                rewards.setdefault(trajectory.group, []).append(reward)
            for group, values in rewards.items():
                flat = not has_signal(values) and any(value is not None for value in values)
                (zero_variance if flat else kept).append(group)
        return StepGroups(
            trajectories=found,
            kept=frozenset([*kept, *zero_variance][: self._share]),
            taken=taken,
            groups=len(kept) + len(zero_variance),
            zero_variance=len(zero_variance),
        )

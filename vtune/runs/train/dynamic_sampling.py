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
    """All that were generated, in order, scored."""
    kept: frozenset[int]
    """Groups to learn from; always as many as a step has."""
    taken: int
    """Prompts that this process has used in the whole run, including these."""
    groups: int
    """Groups that were generated."""
    zero_variance: int
    """Those of them with zero variance: their rewards exist and are all alike."""


class DynamicSampling:
    """Generates the groups of one step after another.

    DAPO §3.2: a group whose rewards are all alike has no advantage to learn from, so it is replaced by one of
    the next prompt. Every process takes the next of its own prompts, so none waits for another, and the next
    step begins where this one ended. After `rounds` more rounds what is missing is made up of zero-variance
    groups, first come, first kept: a step always has the same number of rollouts. A group that nobody could
    score is not replaced: the next one would meet the same judge.

    Args:
        draw: (step, numbers of this process's prompts) -> their scored rollouts.
        rewards: What advantages are made from, one per trajectory; None: unscored.
        share: Groups in a step of this process.
        rounds: Rounds after the first.
        taken: Prompts that this process has taken before.
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
        """The rollouts of a step; steps are asked for in order, each once.

        Several may be drawn at the same time. Where groups are replaced they are drawn one after the other: a
        step's replacements come before the next one's prompts.
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

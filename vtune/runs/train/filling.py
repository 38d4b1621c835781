"""The groups that a step learns from: those of the next prompts, and more where they teach nothing."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from vtune.advantage.group import has_signal
from vtune.schema.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Filled:
    """This process's rollouts of one step."""

    trajectories: list[Trajectory]
    """All that were drawn, in order, scored."""
    kept: frozenset[int]
    """Groups that are learnt from; always as many as a step has."""
    taken: int
    """Prompts that this process has taken in the whole run, these included."""
    groups: int
    """Groups that were drawn."""
    silent: int
    """Of them, those whose rewards are all alike."""


class Filling:
    """Draws the groups of one step after the other.

    Dynamic sampling (DAPO §3.2): a group whose rewards are all alike has no advantage to learn from, so it is
    replaced by one of the next prompt. Every process goes on in prompts of its own, so none waits for
    another, and the next step begins where this one ended. After `refills` rounds what is missing is made up
    of silent groups, first come, first kept: a step always has the same number of rollouts.

    Args:
        draw: (step, numbers of this process's prompts) -> their scored rollouts.
        rewards: What advantages are made from, one a trajectory; None: unscored.
        share: Groups in a step of this process.
        refills: Rounds after the first.
        taken: Prompts that this process has taken before.
    """

    def __init__(
        self,
        draw: Callable[[int, range], Awaitable[list[Trajectory]]],
        rewards: Callable[[Sequence[Trajectory]], list[float | None]],
        *,
        share: int,
        refills: int,
        taken: int,
    ) -> None:
        self._draw = draw
        self._rewards = rewards
        self._share = share
        self._refills = refills
        self._taken = taken

    async def of(self, step: int) -> Filled:
        """The rollouts of a step; steps are asked for in order, each once."""
        found: list[Trajectory] = []
        telling: list[int] = []
        silent: list[int] = []
        for _ in range(1 + self._refills):
            missing = self._share - len(telling)
            if missing == 0:
                break
            numbers = range(self._taken, self._taken + missing)
            self._taken += missing
            drawn = await self._draw(step, numbers)
            found += drawn
            rewards: dict[int, list[float | None]] = {}
            for trajectory, reward in zip(drawn, self._rewards(drawn), strict=True):
                rewards.setdefault(trajectory.group, []).append(reward)
            for group, values in rewards.items():
                (telling if has_signal(values) else silent).append(group)
        return Filled(
            trajectories=found,
            kept=frozenset([*telling, *silent][: self._share]),
            taken=self._taken,
            groups=len(telling) + len(silent),
            silent=len(silent),
        )

"""The reward for using what was shown: right answers regenerated with another target shown.

That a call shows the target does not prove that it was read: a policy may look at it and base its answer on
something else. So for a right answer whose look shows the target, the last turn is generated again after the
same tokens, with another sample's target in place of the look. If the answer is then no longer right, it
depended on the look and is rewarded; if it stays right, it did not.
"""

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from vtune.errors import RunFailed, ServiceError, VtuneError, first_failure
from vtune.models.policy import Policy
from vtune.reward.combining import with_part
from vtune.reward.evidence import needs_look
from vtune.reward.looks import with_looks
from vtune.reward.part import Unscored, unscored
from vtune.reward.recipe import RIGHT, Counterfactual
from vtune.reward.score import AT_ONCE, Scorer, at_threshold
from vtune.rollout.engine import Completion, Engine
from vtune.rollout.regeneration import Regeneration, answer_again, draw_side_by_side
from vtune.rollout.stopwatch import Stopwatch
from vtune.runs.agent.exchanges import Scene, Unknown, of_another
from vtune.runs.agent.rerun import asks_again, ended_with, others_of, sampling_of, turn_number
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.message import Picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict

T = TypeVar("T")

NAME = "counterfactual"
"""The part's name in records and metrics."""

Lend = Callable[[Sample, int], tuple[Sample, Sequence[bytes]] | None]
"""(sample, number of its prompt) -> another sample of its source with a box and a different right answer, and
its pictures; None if there is none nearby."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """A right answer whose last turn is regenerated."""

    sample: Sample
    trajectory: Trajectory
    again: Regeneration


class Counterfactuals:
    """Adds this part to the rewards of scored rollouts.

    Args:
        recipe: The run's recipe, with a section `reward.counterfactual`.
        policy: The policy, for its chat format and picture reader.
        engine: Generates, with the weights that sampled the rollouts.
        scorer: Judges answers and looks.
        lend: Finds a target for a question among the prompts; where it finds none, this process's other
            rollouts of the step lend theirs.
        waiting: Stopwatch that runs while this part is determined, except while turns are generated.
    """

    def __init__(
        self,
        recipe: RLRecipe,
        policy: Policy,
        engine: Engine,
        scorer: Scorer,
        lend: Lend,
        *,
        waiting: Stopwatch | None = None,
    ) -> None:
        assert recipe.reward.counterfactual is not None
        self._section: Counterfactual = recipe.reward.counterfactual
        self._rollout = recipe.rollout
        self._seed = recipe.seed
        self._policy = policy
        self._engine = engine
        self._scorer = scorer
        self._lend = lend
        self._waiting = waiting or Stopwatch()

    async def __call__(
        self, samples: Sequence[Sample], drawn: Sequence[Trajectory], step: int, *, iou: Sequence[float]
    ) -> list[Trajectory]:
        """The rollouts, in order, with the part added to the rewards of randomly chosen groups.

        In these groups, the last turn of each right answer whose look shows the target is regenerated.

        Args:
            samples: The samples of the rollouts.
            drawn: The scored rollouts.
            step: The step in which they were generated.
            iou: The step's thresholds, as for `Scorer.score`.

        Raises:
            RunFailed: If no working backend is left to generate.
        """
        by_id = {sample.id: at_threshold(sample, iou) for sample in samples}
        with self._waiting:
            found = await self._parts(by_id, drawn, step)
        return [self._paid(one, found.get(number)) for number, one in enumerate(drawn)]

    async def _parts(
        self, by_id: Mapping[str, Sample], drawn: Sequence[Trajectory], step: int
    ) -> dict[int, Verdict | Unscored | None]:
        """The part for each rollout of the chosen groups that has a total, by its index."""
        asked = [
            number
            for number, one in enumerate(drawn)
            if one.reward is not None and one.reward.total is not None and self._asked(one)
        ]
        known = await _at_once(self._known, [(by_id[drawn[k].sample_id], drawn[k]) for k in asked])
        found = dict(zip(asked, known, strict=True))
        todo = [number for number, part in found.items() if part is None]
        # As many at a time as are generated together: each holds its pictures in memory.
        for start in range(0, len(todo), self._rollout.max_batch):
            some = todo[start : start + self._rollout.max_batch]
            parts = await self._drawn([drawn[number] for number in some], by_id, drawn, step)
            found |= zip(some, parts, strict=True)
        return found

    def _asked(self, trajectory: Trajectory) -> bool:
        """Whether its group is chosen: groups are chosen as a whole, so that their rewards are comparable."""
        digest = hashlib.sha256(f"{self._seed} {trajectory.group}".encode()).digest()
        return int.from_bytes(digest[:8], "big") < self._section.share * 2**64

    async def _known(self, sample: Sample, trajectory: Trajectory) -> Verdict | Unscored | None:
        """The part if it is known without generating; None if a turn has to be generated."""
        assert trajectory.reward is not None
        accuracy = trajectory.reward.accuracy
        if accuracy is None:
            return Unscored("the answer is unscored")
        if accuracy < RIGHT:
            return Verdict(0.0, "the answer is wrong")
        if not needs_look(sample, self._scorer.judges.levels):
            return Verdict(0.0, "no look needed")
        try:
            looked = await asyncio.to_thread(with_looks, trajectory, self._scorer.judges.levels)
            for k, call in enumerate(looked.calls):
                if call.images and await self._scorer.judges.of(sample).shows_target(sample, looked, k):
                    return None
        except RunFailed:
            raise  # a user's own judge is broken
        except VtuneError as error:
            return unscored(error)
        return Verdict(0.0, "no look shows the target")

    async def _drawn(
        self,
        some: Sequence[Trajectory],
        by_id: Mapping[str, Sample],
        drawn: Sequence[Trajectory],
        step: int,
    ) -> list[Verdict | Unscored]:
        """The part for right answers, whose turns are regenerated together."""
        # All answers of a group meet the same target, so that their rewards are comparable.
        others: dict[int, list[tuple[Sample, Trajectory]]] = {}
        for one in some:
            if one.group not in others:
                sample = by_id[one.sample_id]
                others[one.group] = await asyncio.to_thread(self._others, sample, one.group, by_id, drawn)
        turns = [
            await asyncio.to_thread(self._turn, by_id[one.sample_id], one, others[one.group], step)
            for one in some
        ]
        todo = [turn for turn in turns if isinstance(turn, _Turn)]
        again = [turn.again for turn in todo]
        room = min(self._rollout.max_batch, max(1, len(todo)))
        with self._waiting.covered():
            said = await draw_side_by_side(self._engine, again, self._policy.chat, room=room)
        judged = iter(await _at_once(self._judged, list(zip(todo, said, strict=True))))
        return [next(judged) if isinstance(turn, _Turn) else turn for turn in turns]

    def _others(
        self, sample: Sample, group: int, by_id: Mapping[str, Sample], drawn: Sequence[Trajectory]
    ) -> list[tuple[Sample, Trajectory]]:
        """What can be shown as another target in place of a group's looks.

        A prompt nearby is preferred to the rollouts, which are only those of this process: so a reward does
        not depend on the number of processes.
        """
        lent = self._lend(sample, group)
        return others_of(sample, by_id, drawn) if lent is None else [_as_rollout(*lent)]

    def _turn(
        self,
        sample: Sample,
        trajectory: Trajectory,
        others: Sequence[tuple[Sample, Trajectory]],
        step: int,
    ) -> _Turn | Unscored:
        rng = random.Random(f"{self._seed} {trajectory.group} {trajectory.rollout}")
        shown = of_another(Scene(sample, trajectory, others, rng))
        if isinstance(shown, Unknown):
            return Unscored(shown.why)
        again = answer_again(
            trajectory,
            shown.images,
            self._policy.chat,
            self._policy.pictures,
            sampling=sampling_of(self._rollout, sample, trajectory),
            # The key of the turn itself: if keys alone determine sampling, only the picture differs.
            key=(self._seed, step, trajectory.group, trajectory.rollout, turn_number(sample, trajectory)),
        )
        return _Turn(sample, trajectory, again)

    async def _judged(self, turn: _Turn, said: tuple[str, Completion] | ServiceError) -> Verdict | Unscored:
        if isinstance(said, ServiceError):
            return unscored(said)
        text, completion = said
        if asks_again(text, turn.sample, completion):
            return Verdict(1.0, "with another target shown it looks again")
        ended = ended_with(turn.trajectory, turn.again, text)
        verdict = await self._scorer.accuracy(turn.sample, ended)
        if isinstance(verdict, Unscored):
            return verdict
        if verdict.score >= RIGHT:
            return Verdict(0.0, "right with another target shown, too")
        return Verdict(1.0, "another answer with another target shown")

    def _paid(self, trajectory: Trajectory, part: Verdict | Unscored | None) -> Trajectory:
        if part is None or trajectory.reward is None:
            return trajectory
        return replace(trajectory, reward=with_part(trajectory.reward, NAME, part, self._section.weight))


async def _at_once(call: Callable[..., Awaitable[T]], many: Sequence[tuple[Any, ...]]) -> list[T]:
    """The results of many calls, in order; as many at a time as are scored, as each may decode pictures."""
    room = asyncio.Semaphore(AT_ONCE)

    async def in_turn(given: tuple[Any, ...]) -> T:
        async with room:
            return await call(*given)

    with first_failure():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(in_turn(given)) for given in many]
    return [task.result() for task in tasks]


def _as_rollout(sample: Sample, images: Sequence[bytes]) -> tuple[Sample, Trajectory]:
    """A sample without an answer, in the form of a rollout that lends its target."""
    stored = tuple(Picture(data=data) for data in images)
    return sample, Trajectory(sample_id=sample.id, source=sample.source, images=stored)

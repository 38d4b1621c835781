"""From trajectories to rewards: the answer, the format, and what the tool calls showed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from vtune.environments import DEFAULT, name_of
from vtune.errors import DataError, first_failure
from vtune.judge.batches import Tell
from vtune.judge.budget import Purse
from vtune.judge.client import JudgeClient
from vtune.reward.client import RewardClient
from vtune.reward.combining import combine, unscorable, weights_of
from vtune.reward.evidence import Judges, needs_look, score_calls
from vtune.reward.flags import call_flags
from vtune.reward.looks import with_looks
from vtune.reward.part import Scene, Unscored, asked_for, scored, unscored
from vtune.reward.recipe import EvidenceLevels, RewardRecipe
from vtune.reward.searches import repeated_searches
from vtune.reward.wire import settings_of
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict
from vtune.verifiers import verifier_of
from vtune.verifiers.detection import with_iou
from vtune.verifiers.spaces import answers_in_shown_pixels, with_shown_size
from vtune.verifiers.verifying import Verifying

AT_ONCE = 64
"""Trajectories scored concurrently; ours: enough to keep a judge busy, few enough for their decoded pictures
to fit in memory."""


ShownSize = Callable[[bytes], tuple[int, int]]
"""An encoded picture -> the (width, height) at which the policy sees it."""

Begin = Callable[[Trajectory], "asyncio.Task[Trajectory]"]
"""Starts scoring a trajectory; raises DataError if it answers none of the samples."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A trajectory with its scores."""

    trajectory: Trajectory
    again: bool
    """Its total is None, and a retry may score it."""
    silent: bool = False
    """Its total is None because the judging model gave no reply."""
    fix: str = ""
    """The remedy if its total is None and a remedy is known."""


class Scorer:
    """Scores trajectories; an async context manager that owns the verifiers' workers and the judge client.

    If the recipe names reward services, they score instead, with the same `score_trajectory`.
    """

    def __init__(
        self,
        recipe: RewardRecipe,
        *,
        judge_cache: Path | None = None,
        shown: ShownSize | None = None,
        purse: Purse | None = None,
    ) -> None:
        """Create a scorer, without starting or connecting anything.

        Args:
            recipe: Weights, levels and judge.
            judge_cache: Where the judge's replies are cached between runs, as JSONL; one file per process.
            shown: Returns the size at which the policy sees a picture; needed only if replies are in such
                pixels.
            purse: Counts what the judge consumes; None: nothing is counted.
        """
        self._shown = shown
        self._recipe = recipe
        self._client = (
            JudgeClient(recipe.judge, cache=judge_cache, purse=purse) if recipe.judge is not None else None
        )
        self._verifying = Verifying()
        self._remote = RewardClient(recipe.service, settings_of(recipe)) if recipe.service else None
        self._open = AsyncExitStack()
        self.judges = Judges(recipe.evidence, self._client)
        """The judge of the calls, shared with `vtune.reward.audit`, so that metric and reward agree."""
        self.silent: dict[tuple[str, int], str] = {} if self._remote is None else self._remote.silent
        """(sample, rollout) -> why its judge, or that of the service, gave no reply, for trajectories left
        unscored by it."""

    async def __aenter__(self) -> Self:
        await self._open.enter_async_context(self._verifying)
        if self._client is not None:
            await self._open.enter_async_context(self._client)
        if self._remote is not None:
            await self._open.enter_async_context(self._remote)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def score(
        self, samples: Iterable[Sample], trajectories: Sequence[Trajectory], *, iou: Sequence[float] = ()
    ) -> list[Trajectory]:
        """The trajectories, in order, with `reward`, `tool_scores` and the flags of their calls filled in.

        Scores that could not be determined (a judge, worker, sandbox or service failed) are None, with the
        reason in `reward.why`.

        Args:
            samples: Must include those that the trajectories answer, in any order.
            trajectories: Existing scores are replaced.
            iou: Thresholds of this step (`vtune.reward.schedule`) for box verifiers whose sample
                sets none.

        Raises:
            DataError: If a trajectory answers none of the samples.
            RunFailed: If a user's own part is broken.
        """
        async with self.scoring(samples, iou=iou) as begin:
            begun = [begin(trajectory) for trajectory in trajectories]
        return [task.result() for task in begun]

    @asynccontextmanager
    async def scoring(self, samples: Iterable[Sample], *, iou: Sequence[float] = ()) -> AsyncIterator[Begin]:
        """Scores trajectories as they arrive, with the same scores as `score`.

        Yields a function that starts scoring a trajectory and returns the task. On leaving the block, all of
        them have been scored. An exception in one cancels the block.

        Args:
            samples: Must include those that the trajectories will answer, in any order.
            iou: As for `score`.
        """
        by_id = {sample.id: at_threshold(sample, iou) for sample in samples}
        room = asyncio.Semaphore(AT_ONCE)

        async def score_in_turn(sample: Sample, trajectory: Trajectory) -> Trajectory:
            trajectory = replace(trajectory, needs_look=needs_look(sample, self._recipe.evidence))
            async with room:
                try:
                    if answers_in_shown_pixels(sample):
                        # The picture may have to be decoded.
                        sample = await asyncio.to_thread(self.with_shown_size, sample, trajectory)
                except DataError as error:
                    return unscorable(trajectory, error.what)
                return await self._score(sample, trajectory)

        with first_failure():
            async with asyncio.TaskGroup() as group:

                def begin(trajectory: Trajectory) -> asyncio.Task[Trajectory]:
                    sample = by_id.get(trajectory.sample_id)
                    if sample is None:
                        raise DataError(
                            f"no sample has the id {trajectory.sample_id!r}",
                            fix="score with the data that the rollouts used",
                        )
                    turn = score_in_turn(sample, trajectory)
                    try:
                        return group.create_task(turn)
                    except RuntimeError:  # another has failed, and the group is ending
                        turn.close()
                        raise

                yield begin

    async def accuracy(self, sample: Sample, trajectory: Trajectory) -> Verdict | Unscored:
        """The score of the answer alone, unweighted; the rest of the trajectory is ignored.

        Args:
            sample: What was asked, at the thresholds of the step (`at_threshold`).
            trajectory: Its reply is judged.
        """
        try:
            if answers_in_shown_pixels(sample):
                sample = await asyncio.to_thread(self.with_shown_size, sample, trajectory)
        except DataError as error:
            return Unscored(error.what)
        scene = Scene(sample, trajectory, self._recipe, self._verifying, self.judges)
        return await scored("accuracy", self._recipe.accuracy, scene)

    def with_shown_size(self, sample: Sample, trajectory: Trajectory) -> Sample:
        """The sample with the size at which the policy saw its picture, if its reply is in such pixels."""
        data = trajectory.images[0].data if trajectory.images else None
        if (
            trajectory.stop_reason == "error"
            or self._shown is None
            or data is None
            or not answers_in_shown_pixels(sample)
        ):
            return sample
        return with_shown_size(sample, self._shown(data))

    async def _score(self, sample: Sample, trajectory: Trajectory) -> Trajectory:
        if self._remote is not None and trajectory.stop_reason != "error":
            return await self._remote.score(sample, trajectory)
        scored = await score_trajectory(sample, trajectory, self._recipe, self._verifying, self.judges)
        reward = scored.trajectory.reward
        if scored.silent and reward is not None:
            self.silent[trajectory.sample_id, trajectory.rollout] = reward.why
        return scored.trajectory

    def put_off(self) -> None:
        """Do not ask the judge yet (`JudgeClient.put_off`): whatever needs it is unscored and `silent`."""
        self._judge().put_off()

    async def ask_in_batches(
        self, ask_all: Callable[[], Awaitable[object]], *, state: Path, poll_s: float, tell: Tell
    ) -> None:
        """Ask the judge in batches (`JudgeClient.ask_in_batches`); nothing is `silent` afterwards."""
        await self._judge().ask_in_batches(ask_all, state=state, poll_s=poll_s, tell=tell)
        self.silent.clear()

    def _judge(self) -> JudgeClient:
        if self._client is None:
            raise RuntimeError("batches were wanted of a judge, and the recipe names none")
        return self._client

    def judge_facts(self) -> dict[str, Any]:
        """What is known about the recipe's judge (`JudgeClient.facts`); empty if none was asked."""
        return self._client.facts() if self._client is not None and self._client.was_asked else {}


async def score_trajectory(
    sample: Sample, trajectory: Trajectory, recipe: RewardRecipe, verifying: Verifying, judges: Judges
) -> Scored:
    """Score one trajectory, here or in a reward service.

    Args:
        sample: What was asked.
        trajectory: To score; only the policy's turns are read.
        recipe: Weights and levels.
        verifying: Judges the answer.
        judges: Judge the calls, and the answers that no rule can decide.
    """
    if trajectory.stop_reason == "error":
        return Scored(unscorable(trajectory, failure_of(trajectory)), again=False)
    scene = await score_parts(Scene(sample, trajectory, recipe, verifying, judges))
    reward = combine(scene.found, weights_of(sample, recipe), recipe)
    failed = [part for part in scene.found.values() if isinstance(part, Unscored)]
    missing = reward.total is None
    scores = tuple(call.score if isinstance(call, Verdict) else None for call in scene.calls)
    done = replace(scene.trajectory, reward=reward, tool_scores=scores)
    return Scored(
        done,
        again=missing and any(part.again for part in failed),
        silent=missing and any(part.silent for part in failed),
        fix=next((part.fix for part in failed if missing and part.fix), ""),
    )


async def score_parts(scene: Scene) -> Scene:
    """The scores of the recipe's parts for a trajectory, with the looks and flags of its calls.

    Raises:
        RunFailed: If a user's own part is broken.
    """
    paid = weights_of(scene.sample, scene.recipe).tool != 0
    parts: dict[str, Verdict | Unscored] = {}
    scene = replace(await _looked_at(scene, paid=paid), found=MappingProxyType(parts))
    for name, section in asked_for(scene.recipe).items():
        parts[name] = await scored(name, section, scene)
    return scene


async def _looked_at(scene: Scene, *, paid: bool) -> Scene:
    """The scene with the looks, red flags and scores of its calls."""
    done = scene.trajectory
    if not done.calls:
        return scene
    if name_of(scene.sample) != DEFAULT:
        act = Unscored("not a look: an act in an environment")
        return replace(scene, calls=[act] * len(done.calls))
    try:
        done = await asyncio.to_thread(with_flags, done, scene.recipe.evidence, scene.sample.evidence)
        scene = replace(scene, trajectory=done)
        return replace(scene, calls=await score_calls(scene, paid=paid))
    except DataError as error:
        return replace(scene, calls=[unscored(error)] * len(done.calls))


def failure_of(trajectory: Trajectory) -> str:
    """Why a rollout has no score: what failed, according to the call that was in progress."""
    errors = [call.error for call in trajectory.calls if call.status == "infra" and call.error]
    return f"the rollout failed: {errors[-1].splitlines()[0]}" if errors else "the rollout failed"


def with_flags(
    trajectory: Trajectory, levels: EvidenceLevels, targets: Sequence[Evidence] = ()
) -> Trajectory:
    """The trajectory with the looks of every crop and the red flags of every call filled in.

    Raises:
        DataError: If one of its pictures cannot be read.
    """
    trajectory = with_looks(trajectory, levels)
    again = repeated_searches(trajectory.calls)
    flags = [call_flags(trajectory, k, levels, targets, again) for k in range(len(trajectory.calls))]
    calls = tuple(replace(call, flags=found) for call, found in zip(trajectory.calls, flags, strict=True))
    return replace(trajectory, calls=calls)


def at_threshold(sample: Sample, iou: Sequence[float]) -> Sample:
    """The sample with the IoU thresholds of a step, if its verifier needs any and `iou` is not empty."""
    return with_iou(sample, iou) if iou and verifier_of(sample).reads_iou else sample

"""The reinforcement learning loop, in the order in which data flow (CodeV §4.3, stage 2).

A step is `_Loop.step`: generate and score, advantages, credit, update, record. Between steps, the weights are
transferred to the engine, evaluated when that is due, and saved.
"""

import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from vtune.advantage.misassignment import credit_row
from vtune.errors import RunFailed
from vtune.metrics.by_source import Rows, by_source
from vtune.metrics.replies import examples, forget_replies, keep_replies
from vtune.metrics.trackers import check_tracker
from vtune.models.source import resolved
from vtune.report.progress import say
from vtune.report.training import Training
from vtune.reward.checking import check_unscored, silent_line, take_silent
from vtune.reward.schedule import Tightening
from vtune.rollout.blocking import to_end
from vtune.runs.folder import running
from vtune.runs.interpreter import responsive
from vtune.runs.train.checkpoint_manager import CheckpointManager
from vtune.runs.train.draw import Drawing
from vtune.runs.train.dynamic_sampling import DynamicSampling, StepGroups
from vtune.runs.train.learning import (
    Learning,
    check_mismatch,
    overlong_rows,
    rewards,
    updates_of,
    with_advantages,
    with_credit,
)
from vtune.runs.train.online_eval import OnlineEvaluation
from vtune.runs.train.online_suites import Loaded, check_pinned, pin_suites
from vtune.runs.train.opening import Opened, opened
from vtune.runs.train.profile import Profile, check_profile, phase
from vtune.runs.train.record import Record
from vtune.runs.train.rl import check_loopback, check_rl, suites_of
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.runs.train.rollout_scheduler import RolloutScheduler
from vtune.runs.train.step_row import (
    Clock,
    groups_row,
    idle_share,
    interrupted_row,
    memory_gib,
    staleness,
    update_row,
)
from vtune.runs.train.stopping import Stopping
from vtune.runs.train.trajectory_files import forget_trajectories, trajectory_file
from vtune.schema.parquet import write_trajectories
from vtune.schema.source_names import ALL
from vtune.schema.trajectory import Trajectory
from vtune.update.checkpoint import newest_checkpoint
from vtune.update.flops import peak_flops
from vtune.update.ranks import Ranks
from vtune.update.stats import StepStats
from vtune.uses import run_failure

T = TypeVar("T")

REPLIES = 2
"""Per source and step: the worst and the best replies are kept as text (ours)."""

_SHOWN = (
    "reward",
    "accuracy",
    "evidence_rate",
    "red_flags",
    "tool_calls",
    "unscored",
    "entropy",
    "grad_norm",
    "seconds",
)


def run_rl(
    recipe: RLRecipe, out: Path, *, resume: bool, track: str | None = None, profile: int | None = None
) -> dict[str, Any]:
    """Train; weights, metrics, trajectories and checkpoints go to `out`.

    Args:
        recipe: The recipe.
        out: The run folder.
        resume: Continue the run in the folder.
        track: Name of a tracker that receives the contents of `metrics.jsonl`, and trajectories.
        profile: The step to record with torch's profiler, counted from 1.

    Returns:
        `model` (folder of the trained weights), `steps`, `frozen` (parts whose weights were verified to be
        unchanged), `seconds`, and `last`, the last step's row over all sources.
    """
    check_tracker(track)
    check_profile(profile, done=0, steps=recipe.steps)
    ranks = Ranks.of_this_process()
    recipe = recipe.model_copy(update={"model": resolved(recipe.model)})
    suites = suites_of(recipe)
    if ranks.first:
        check_rl(recipe, suites, world=ranks.world)
        check_pinned(suites, out)
    check_loopback(recipe, suites, ranks)
    with running(out, recipe, [Path(name) for name in recipe.data], resume=resume, ranks=ranks):
        if ranks.first:
            pin_suites(suites, out)
        return to_end(_train(recipe, suites, out, ranks, resume=resume, track=track, profile=profile), say)


async def _train(
    recipe: RLRecipe,
    suites: Sequence[Loaded],
    out: Path,
    ranks: Ranks,
    *,
    resume: bool,
    track: str | None,
    profile: int | None,
) -> dict[str, Any]:
    async with opened(recipe, suites, out, ranks, resume=resume) as run:
        loop = _Loop(run, suites, track=track, profile=profile)
        async with aclosing(loop.scheduler):
            with responsive():
                last = await loop.steps()
    frozen = run.trainer.check_frozen()
    if frozen and ranks.first:
        say(f"frozen, and bit for bit the same as at the start: {', '.join(frozen)}")
    return {
        "model": str(newest_checkpoint(out / "checkpoints")),
        "steps": recipe.steps,
        "frozen": list(frozen),
        "seconds": time.monotonic() - run.began,
        "last": dict(last),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step on its way through the loop: each stage returns it with its own results added."""

    number: int
    """Number of steps completed before it."""
    clock: Clock
    drawn: StepGroups
    """This process's scored rollouts, and which of their groups are learnt from."""
    everyone: list[Trajectory]
    """The rollouts of all processes, without pictures."""
    tightened: dict[str, float]
    """Metrics of IoU thresholds."""
    learnt: list[Trajectory] = field(default_factory=list)
    """This process's rollouts with their advantages."""
    credit: dict[str, float] = field(default_factory=dict)
    """Metrics of credit transfer."""
    updates: list[StepStats] = field(default_factory=list)
    rows: Rows = field(default_factory=dict)
    """Metrics, by source."""


class _Loop:
    """The steps of a run."""

    def __init__(
        self, run: Opened, suites: Sequence[Loaded], *, track: str | None, profile: int | None
    ) -> None:
        recipe, ranks = run.recipe, run.ranks
        self._run = run
        self._recipe = recipe
        self._ranks = ranks
        self._profile = Profile.of_run(profile, run.out, ranks, done=run.done, steps=recipe.steps)
        self._peak = peak_flops(ranks, recipe.update)
        self._tightening = Tightening(recipe.reward.iou, steps=recipe.steps, saved=run.state)
        self._drawing = Drawing(
            recipe, run.agent, run.scorer, self._tightening, ranks, policy=run.policy, engine=run.engine
        )
        share = recipe.prompts_per_step // ranks.world
        # Prompts that each process has used; without dynamic sampling each step uses its share.
        self._taken: list[int] = (run.state or {}).get("taken", [run.done * share] * ranks.world)
        self._sampling = DynamicSampling(
            self._drawing,
            partial(rewards, recipe=recipe.advantage),
            share=share,
            rounds=recipe.advantage.dynamic_sampling_rounds,
            taken=self._taken[ranks.rank],
        )
        ahead = recipe.rollout.staleness
        self.scheduler = RolloutScheduler(
            self._draw,
            run.engine,
            run.trainer.weights if recipe.rollout.adapters == "merged" else run.trainer.adapters,
            ranks.wait,
            staleness=ahead,
            interrupt=recipe.rollout.interrupt,
            steps=recipe.steps,
        )
        self._learn = Learning(run.trainer, ranks, threads=recipe.update.threads, in_background=ahead > 0)
        settings = recipe.model_dump(mode="json")
        self._record = Record(run.out, ranks, settings, track=track, done=run.done)
        if ranks.first:
            forget_replies(run.out, run.done)
            forget_trajectories(run.out, run.done)
        self._checkpoints = CheckpointManager(recipe.checkpoints, run.out, ranks)
        self._stopping = Stopping(recipe.checkpoints, recipe.steps, ranks, done=run.done)
        self._evaluation = OnlineEvaluation(
            recipe.eval,
            suites,
            steps=recipe.steps,
            done=run.done,
            policy=run.policy,
            gathered=self._gathered,
            ranks=ranks,
            out=run.out,
            record=self._record,
            checkpoints=self._checkpoints,
            stop_requested=lambda: self._stopping.requested,
            announced=run.runs_code,
        )

    async def steps(self) -> Mapping[str, float]:
        """Run all remaining steps; returns the last one's row over all sources, empty if there was none."""
        done, steps = self._run.done, self._recipe.steps
        rows: Rows = {}
        shown = Training("rl", self._run.out, steps, done=done, show=self._ranks.first)
        with self._checkpoints as checkpoints, self._stopping, self._record, shown as progress:
            for number in range(done, steps):
                with self._profile.of(number):
                    rows = (await self.step(number)).rows
                progress.advance({name: rows[ALL].get(name) for name in _SHOWN})
                self._stopping.after(number + 1, partial(self._save, number + 1), checkpoints.finish)
                checkpoints.finish_written()
            await self._evaluate_at_the_end()
        return rows.get(ALL, {})

    async def step(self, number: int) -> Step:
        """One step, in the order in which data flow."""
        clock = Clock()
        await self._together(number, self.scheduler.ready(number))
        if self._evaluation.due(number):
            # An evaluation gets the engine, and the machine, to itself.
            await self._together(number, self.scheduler.settled())
            clock.leave_out(await self._evaluate(number))
        step = await self._drawn_and_scored(number, clock)
        step = self._with_advantages(step)
        step = self._with_credit(step)
        step = await self._updated(step)
        step = self._recorded(step)
        if step.updates and not staleness(step.everyone, number):
            # After the record is written, so that the metrics show why the run ended here.
            check_mismatch(step.updates[0], self._recipe.rollout.engine)
        return step

    async def _drawn_and_scored(self, number: int, clock: Clock) -> Step:
        """Generate and score in one phase: zero-variance groups may be replaced, which needs the scores."""
        with phase("rollout"):
            drawn = await self._together(number, self.scheduler.of(number))
        clock.lap("rollout")
        shares = self._ranks.gather([_without_pictures(t) for t in drawn.trajectories])
        everyone = [t for share in shares for t in share]
        self._say_silent(number, drawn.trajectories, len(everyone))
        try:
            check_unscored(everyone, self._recipe.reward.max_unscored)
        except RunFailed as failure:
            self._fail(failure, number)  # all processes have the same trajectories, so all raise this
        # Before any await: the next step may be scored while this one trains.
        tightened = self._tightening.after(number, everyone)
        return Step(number=number, clock=clock, drawn=drawn, everyone=everyone, tightened=tightened)

    def _say_silent(self, number: int, drawn: Sequence[Trajectory], total: int) -> None:
        """Report rollouts for which the reward's judge did not answer; a few of them do not stop the run."""
        line = silent_line(self._ranks.gather(take_silent(drawn, self._run.scorer.silent)), total)
        if line is not None and self._ranks.first:
            say(f"step {number}: {line}")

    def _with_advantages(self, step: Step) -> Step:
        return replace(step, learnt=with_advantages(step.drawn.trajectories, self._recipe.advantage))

    def _with_credit(self, step: Step) -> Step:
        recipe = self._recipe.credit
        if recipe is None:
            return step
        began = time.monotonic()
        learnt, transfer = with_credit(step.learnt, recipe)
        row = {"seconds_credit": time.monotonic() - began}
        return replace(step, learnt=learnt, credit=row | credit_row(self._ranks.gather(transfer), recipe))

    async def _updated(self, step: Step) -> Step:
        kept = [t for t in step.learnt if t.group in step.drawn.kept]
        with phase("update"):
            updates = await self._learn(updates_of(kept, self._recipe.updates_per_step))
        step.clock.lap("update")
        return replace(step, updates=updates)

    def _recorded(self, step: Step) -> Step:
        recipe, run = self._recipe, self._run
        if step.number % recipe.trajectories_every == 0 or step.number + 1 == recipe.steps:
            file = trajectory_file(run.out, step.number, self._ranks)
            write_trajectories(file, step.learnt, run=run.out)
            self._record.trajectories(step.number, step.learnt, file)
        rows = by_source(step.everyone, evidence_score=recipe.reward.evidence.full)
        for source, row in overlong_rows(step.everyone, recipe.advantage).items():
            rows[source] |= row
        rows[ALL] |= (
            update_row(step.updates)
            | step.clock.row(step.updates, processes=self._ranks.world, peak=self._peak)
            | step.credit
            | step.tightened
        )
        rows[ALL] |= self._rest_of_the_row(step)
        if not recipe.rollout.staleness:
            rows[ALL]["idle_share"] = idle_share(rows[ALL])
        if recipe.rollout.interrupt:
            rows[ALL] |= interrupted_row(step.everyone, step.number)
        self._record.write(step.number, rows)
        if self._ranks.first:
            keep_replies(run.out, step.number, examples(step.everyone, each=REPLIES))
        return replace(step, rows=rows)

    def _rest_of_the_row(self, step: Step) -> dict[str, float]:
        """Metrics of the step as a whole that have to be gathered from all processes."""
        drawn_by = self._ranks.gather(replace(step.drawn, trajectories=[]))
        used = self._ranks.gather((self._run.agent.take_lost(), memory_gib(self._ranks.device)))
        self._taken = [one.taken for one in drawn_by]
        recipe = self._recipe
        resampled = recipe.advantage.dynamic_sampling_rounds > 0
        row = groups_row(drawn_by, asked=recipe.prompts_per_step, resampled=resampled)
        return row | {
            "seconds_reward": self._drawing.scoring.take(),
            "seconds_sandbox": self._run.waiting.take(),
            "staleness": staleness(step.everyone, step.number),
            "sessions_lost": sum(lost for lost, _ in used),
            "memory_gib": max(memory for _, memory in used),
        }

    async def _draw(self, number: int) -> StepGroups:
        with self._gathered():
            return await self._sampling.of(number)

    def _gathered(self) -> AbstractContextManager[object]:
        # Other engines have their own weights, which were transferred before.
        drawn_here = self._recipe.rollout.engine == "transformers"
        return self._run.trainer.gathered() if drawn_here else nullcontext()

    async def _together(self, number: int, awaited: Awaitable[T]) -> T:
        """Await a result; if one process loses its engine, all stop together, and save what is trained."""
        found: list[T] = []
        failure = None
        try:
            found.append(await awaited)
        except Exception as error:
            if (failure := run_failure(error)) is None:
                raise
        if failures := [one for one in self._ranks.gather(failure) if one is not None]:
            self._fail(failures[0], number)
        return found[0]

    async def _evaluate(self, done: int) -> float:
        """Run the evaluation due after `done` steps; returns the seconds that it took."""
        began = time.monotonic()
        try:
            given_up = await self._evaluation.after(done, self._run.engine)
        except RunFailed as failure:
            self._fail(failure, done)  # all processes raise this together
        if given_up:
            self._stopping.stop(done, partial(self._save, done), self._checkpoints.finish)
        return time.monotonic() - began

    async def _evaluate_at_the_end(self) -> None:
        steps = self._recipe.steps
        if self._evaluation.due(steps):
            await self._together(steps, self.scheduler.ready(steps))
            await self._evaluate(steps)
            await self.scheduler.rest()

    def _fail(self, failure: RunFailed, done: int) -> NoReturn:
        self._stopping.fail(failure, done, partial(self._save, done), self._checkpoints.finish)

    def _save(self, done: int) -> None:
        run = self._run
        state = {"taken": self._taken, **self._tightening.state}
        self._checkpoints.save(run.trainer, run.policy, self._recipe.model, done, state)


def _without_pictures(trajectory: Trajectory) -> Trajectory:
    """The part of a trajectory that other processes need: its numbers, and what the policy wrote."""
    written = tuple(message for message in trajectory.messages if message.role == "assistant")
    return replace(trajectory, images=(), messages=written)

"""Reinforcement training, told in the order in which the data flows (CodeV §4.3, stage 2)."""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from vtune.advantage.misassignment import credit_row
from vtune.errors import RunFailed
from vtune.metrics.by_source import ALL, Rows, by_source
from vtune.metrics.replies import examples, forget_replies, keep_replies
from vtune.metrics.trackers import check_tracker
from vtune.models.policy import Policy, load_policy, resolved
from vtune.report.progress import Steps, say
from vtune.reward.checking import check_unscored
from vtune.reward.schedule import Tightening
from vtune.reward.score import Scorer
from vtune.rollout.agent import Agent
from vtune.rollout.engine import Engine
from vtune.rollout.stopwatch import Stopwatch
from vtune.runs.engines import training_engine
from vtune.runs.filling import Filled, Filling
from vtune.runs.folder import running
from vtune.runs.keeping import Keeping, position
from vtune.runs.learning import Learning, rewards, updates_of, with_advantages, with_credit
from vtune.runs.online_eval import OnlineEvaluation
from vtune.runs.online_recipe import Loaded, load_suites, pin_suites
from vtune.runs.record import Record
from vtune.runs.rl import RLRecipe, check_rl
from vtune.runs.rl_draw import Drawing
from vtune.runs.rollouts import Rollouts
from vtune.runs.sandbox import sandbox_of, say_tier
from vtune.runs.step_row import Clock, groups_row, staleness, update_row
from vtune.runs.stopping import Stopping
from vtune.runs.tools import tools_of
from vtune.schema.parquet import write_trajectories
from vtune.schema.trajectory import Trajectory
from vtune.update.checkpoint import newest_checkpoint
from vtune.update.deepspeed import Trainer, start
from vtune.update.ranks import Ranks

T = TypeVar("T")

REPLIES = 2
"""Of each source and step: the worst and the best are kept as text (ours)."""

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


def run_rl(recipe: RLRecipe, out: Path, *, resume: bool, track: str | None = None) -> dict[str, Any]:
    """Train; weights, metrics, trajectories and checkpoints go to `out`.

    Args:
        recipe: What to do.
        out: The run folder.
        resume: Continue the run in it.
        track: Name of a tracker that is told what `metrics.jsonl` is told, and shown trajectories.

    Returns:
        `model` (folder of the trained weights), `steps`, `frozen` (parts whose weights were seen to be those
        of the start), `seconds`, and `last`, the last step's row over all sources.
    """
    check_tracker(track)
    ranks = Ranks.of_this_process()
    recipe = recipe.model_copy(update={"model": resolved(recipe.model)})
    if ranks.first:
        check_rl(recipe, world=ranks.world)
    suites = load_suites(recipe.eval, kind=recipe.rollout.engine, isolation=recipe.sandbox.isolation)
    with running(out, recipe, [Path(name) for name in recipe.data], resume=resume, ranks=ranks):
        if ranks.first:
            pin_suites(suites, out)
        return asyncio.run(_train(recipe, suites, out, ranks, resume=resume, track=track))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What a run is made of."""

    recipe: RLRecipe
    out: Path
    ranks: Ranks
    policy: Policy
    trainer: Trainer
    engine: Engine
    agent: Agent
    drawing: Drawing
    tightening: Tightening
    waiting: Stopwatch
    """Runs while conversations wait for the sandbox."""
    done: int
    """Steps done before the run went on."""
    state: Mapping[str, Any] | None
    """That was saved after them."""


async def _train(
    recipe: RLRecipe, suites: Sequence[Loaded], out: Path, ranks: Ranks, *, resume: bool, track: str | None
) -> dict[str, Any]:
    torch.set_num_threads(recipe.update.threads)
    start(ranks)
    ranks.wait()
    policy = load_policy(recipe.model, budget=recipe.images, dtype=recipe.update.dtype, device=ranks.device)
    updates = recipe.steps * recipe.updates_per_step
    trainer = Trainer(
        policy, recipe.update, ranks, steps=updates, objective=recipe.loss, reference=recipe.model
    )
    if ranks.first:
        say(f"trainable parameters: {trainer.trainable}")
    done, state = position(out / "checkpoints", trainer, resume=resume)
    tightening = Tightening(recipe.reward.iou, steps=recipe.steps, saved=state)
    waiting = Stopwatch()
    engine = training_engine(
        recipe.rollout,
        trainer.rollouts,
        model=recipe.model,
        dtype=recipe.update.dtype,
        threads=recipe.update.threads,
        first=ranks.first,
        folder=out / "weights",
        waiting=waiting,
        also=[(one.suite.rollout, one.suite.images) for one in suites],
    )
    began = time.monotonic()
    cache = out / f"judge-{ranks.rank}.jsonl"
    async with (
        aclosing(engine),
        sandbox_of(recipe.sandbox, sessions=recipe.rollout.max_batch) as sandbox,
        tools_of(recipe.tools, out / f"search-{ranks.rank}.jsonl") as tools,
        Scorer(recipe.reward, judge_cache=cache, shown=policy.pictures.shown_size) as scorer,
    ):
        if ranks.first:
            say_tier(sandbox)
        agent = Agent(
            engine, sandbox, policy.chat, policy.pictures, recipe.rollout, waiting=waiting, tools=tools
        )
        parts = _Parts(
            recipe=recipe,
            out=out,
            ranks=ranks,
            policy=policy,
            trainer=trainer,
            engine=engine,
            agent=agent,
            drawing=Drawing(recipe, agent, scorer, tightening, ranks),
            tightening=tightening,
            waiting=waiting,
            done=done,
            state=state,
        )
        loop = _Loop(parts, suites, track=track)
        async with aclosing(loop.rollouts):
            last = await loop.run()
    return _result(parts, last, began)


def _result(parts: _Parts, last: Mapping[str, float], began: float) -> dict[str, Any]:
    frozen = parts.trainer.check_frozen()
    if frozen and parts.ranks.first:
        say(f"frozen, and bit by bit as at the start: {', '.join(frozen)}")
    return {
        "model": str(newest_checkpoint(parts.out / "checkpoints")),
        "steps": parts.recipe.steps,
        "frozen": list(frozen),
        "seconds": time.monotonic() - began,
        "last": dict(last),
    }


class _Loop:
    """The steps of a run."""

    def __init__(self, parts: _Parts, suites: Sequence[Loaded], *, track: str | None) -> None:
        recipe, ranks = parts.recipe, parts.ranks
        self._parts = parts
        share = recipe.prompts_per_step // ranks.world
        # Prompts that each process has taken; a step takes its share where there are no refills.
        self._taken: list[int] = (parts.state or {}).get("taken", [parts.done * share] * ranks.world)
        self._filling = Filling(
            parts.drawing,
            lambda found: rewards(found, recipe.advantage),
            share=share,
            refills=recipe.advantage.refills,
            taken=self._taken[ranks.rank],
        )
        self.rollouts = Rollouts(
            self._draw,
            parts.engine,
            parts.trainer.weights,
            ranks.wait,
            staleness=recipe.rollout.staleness,
            steps=recipe.steps,
        )
        aside = recipe.rollout.staleness > 0
        self._learn = Learning(parts.trainer, ranks, threads=recipe.update.threads, aside=aside)
        settings = recipe.model_dump(mode="json")
        self._record = Record(parts.out, ranks, settings, track=track, done=parts.done)
        if ranks.first:
            forget_replies(parts.out, parts.done)
        self._keeping = Keeping(recipe.checkpoints.keep, parts.out)
        self._stopping = Stopping(recipe.checkpoints, recipe.steps, ranks, done=parts.done)
        self._evaluation = OnlineEvaluation(
            recipe.eval,
            suites,
            steps=recipe.steps,
            done=parts.done,
            policy=parts.policy,
            whole=self._whole,
            ranks=ranks,
            out=parts.out,
            record=self._record,
            keeping=self._keeping,
        )

    async def run(self) -> Mapping[str, float]:
        """All steps that are left; returns the last one's row over all sources, empty if there was none."""
        recipe, done = self._parts.recipe, self._parts.done
        rows: Rows = {}
        shown = self._parts.ranks.first
        if shown:
            self._keeping.point()
        with self._stopping, self._record, Steps("rl", recipe.steps, done=done, show=shown) as progress:
            for step in range(done, recipe.steps):
                clock = Clock()
                await self._together(step, self.rollouts.ready(step))
                clock.leave_out(await self._evaluated(step))
                filled = await self._together(step, self.rollouts.of(step))
                clock.lap("rollout")
                everyone = self._everyone(filled)
                # Before anything is awaited: the next step may be scored while this one trains.
                tightened = self._parts.tightening.after(step, everyone)
                learnt, credit = self._credited(filled)
                of_kept = [t for t in learnt if t.group in filled.kept]
                stats = await self._learn(updates_of(of_kept, recipe.updates_per_step))
                clock.lap("update")
                self._keep_trajectories(step, learnt)
                rows = by_source(everyone, evidence_score=recipe.reward.evidence.full)
                rows[ALL] |= update_row(stats) | clock.row(stats) | credit | tightened
                rows[ALL] |= self._rest_of_the_row(step, filled, everyone)
                self._tell(step, rows, everyone)
                seen = {source: {name: row.get(name) for name in _SHOWN} for source, row in rows.items()}
                progress.advance(seen[ALL], seen)
                self._stopping.after(step + 1, partial(self._save, step + 1))
            await self._evaluate_at_the_end()
        return rows.get(ALL, {})

    async def _draw(self, step: int) -> Filled:
        with self._whole():
            return await self._filling.of(step)

    def _whole(self) -> AbstractContextManager[object]:
        # An engine with weights of its own was given them before.
        drawn_here = self._parts.recipe.rollout.engine == "transformers"
        return self._parts.trainer.whole() if drawn_here else nullcontext()

    async def _together(self, step: int, awaited: Awaitable[T]) -> T:
        """What is awaited; one process may lose its engine alone: all stop together, with what is trained."""
        found: list[T] = []
        failure = None
        try:
            found.append(await awaited)
        except RunFailed as error:
            failure = error
        failures = [one for one in self._parts.ranks.gather(failure) if one is not None]
        if failures:
            self._save_unsaved(step)
            raise failures[0]
        return found[0]

    async def _evaluated(self, step: int) -> float:
        """The evaluation that is due after `step` steps; returns the seconds that it took."""
        try:
            return await self._evaluation.after(step, self._parts.engine)
        except RunFailed:
            # All processes have it, and all are here.
            self._save_unsaved(step)
            raise

    async def _evaluate_at_the_end(self) -> None:
        steps = self._parts.recipe.steps
        if self._evaluation.due(steps):
            await self._together(steps, self.rollouts.ready(steps))
            await self._evaluated(steps)
            await self.rollouts.rest()

    def _everyone(self, filled: Filled) -> list[Trajectory]:
        """The trajectories of all processes, without their pictures."""
        shares = self._parts.ranks.gather([_without_pictures(t) for t in filled.trajectories])
        everyone = [t for share in shares for t in share]
        check_unscored(everyone, self._parts.recipe.reward.max_unscored)
        return everyone

    def _credited(self, filled: Filled) -> tuple[list[Trajectory], dict[str, float]]:
        """The trajectories with their advantages after credit transfer, and what is told of it."""
        recipe = self._parts.recipe
        learnt = with_advantages(filled.trajectories, recipe.advantage)
        if recipe.credit is None:
            return learnt, {}
        began = time.monotonic()
        learnt, transfer = with_credit(learnt, recipe.credit)
        row = {"seconds_credit": time.monotonic() - began}
        return learnt, row | credit_row(self._parts.ranks.gather(transfer), recipe.credit)

    def _keep_trajectories(self, step: int, learnt: Sequence[Trajectory]) -> None:
        recipe, out = self._parts.recipe, self._parts.out
        if step % recipe.trajectories_every == 0 or step + 1 == recipe.steps:
            file = out / "trajectories" / _file_name(step, self._parts.ranks)
            write_trajectories(file, learnt, run=out)
            self._record.trajectories(step, learnt)

    def _rest_of_the_row(self, step: int, filled: Filled, everyone: Sequence[Trajectory]) -> dict[str, float]:
        """What the metrics say of the step as a whole that all processes have to be asked for."""
        parts, recipe, ranks = self._parts, self._parts.recipe, self._parts.ranks
        drawn_by = ranks.gather(replace(filled, trajectories=[]))
        self._taken = [one.taken for one in drawn_by]
        row = groups_row(drawn_by, asked=recipe.prompts_per_step, refills=bool(recipe.advantage.refills))
        return row | {
            "seconds_reward": parts.drawing.scoring.take(),
            "seconds_sandbox": parts.waiting.take(),
            "staleness": staleness(everyone, step),
            "sessions_lost": sum(ranks.gather(parts.agent.take_lost())),
        }

    def _tell(self, step: int, rows: Rows, everyone: Sequence[Trajectory]) -> None:
        self._record.write(step, rows)
        if self._parts.ranks.first:
            keep_replies(self._parts.out, step, examples(everyone, each=REPLIES))

    def _save_unsaved(self, step: int) -> None:
        if step > self._stopping.saved:
            self._save(step)

    def _save(self, step: int) -> None:
        parts = self._parts
        state = {"taken": self._taken, **parts.tightening.state}
        self._keeping.save(parts.trainer, parts.policy, parts.recipe.model, step, parts.ranks, state)


def _without_pictures(trajectory: Trajectory) -> Trajectory:
    """What other processes need of a trajectory: its numbers, and what the policy wrote."""
    written = tuple(message for message in trajectory.messages if message.role == "assistant")
    return replace(trajectory, images=(), messages=written)


def _file_name(step: int, ranks: Ranks) -> str:
    return f"step-{step:06d}.parquet" if ranks.world == 1 else f"step-{step:06d}-rank-{ranks.rank}.parquet"

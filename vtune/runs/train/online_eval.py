"""Evaluation during training: the current weights, with the run's own engine.

Every process takes part, with every n-th question of a suite; results are gathered, and the first process
writes them. Training is not affected: sampling has separate keys, and no state is shared.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from vtune.errors import RunFailed, VtuneError
from vtune.metrics.benchmarks import Mark, Scores
from vtune.metrics.evaluated import evaluated, row_name
from vtune.models.policy import Policy
from vtune.report.progress import say
from vtune.reward.audit import AuditRow, audit, with_chance
from vtune.reward.checking import check_unscored
from vtune.reward.score import Scorer
from vtune.rollout.agent import Agent, Job, black
from vtune.rollout.engine import Engine
from vtune.runs.agent.opening import open_agent
from vtune.runs.agent.sandbox import needs_sandbox
from vtune.runs.agent.scoring import draw_and_score
from vtune.runs.evaluate.grading import (
    as_shown,
    graded,
    mark_of,
    rule_of,
    scores_of,
    thresholds_of,
    with_fallback,
)
from vtune.runs.evaluate.questions import read_questions, read_records
from vtune.runs.evaluate.windows import Window, slim, windows
from vtune.runs.train.checkpoint_manager import CheckpointManager
from vtune.runs.train.online_recipe import OnlineEval
from vtune.runs.train.online_suites import Loaded
from vtune.runs.train.record import Record
from vtune.schema.trajectory import Trajectory
from vtune.update.ranks import Ranks
from vtune.uses import run_failure

LOOK = 0.5
"""Seconds between checks of whether the run is to stop; ours."""


@dataclass(frozen=True, slots=True)
class _Share:
    """The results of one process."""

    trajectories: list[Trajectory] = field(default_factory=list)
    """Without pictures and tokens."""
    marks: list[Mark] = field(default_factory=list)
    fallbacks: list[Mark] = field(default_factory=list)
    """Marks with the protocol's own fallback."""
    audited: list[AuditRow] = field(default_factory=list)


class OnlineEvaluation:
    """Evaluates the weights during training whenever an evaluation is due.

    Args:
        recipe: When to evaluate; None: never.
        suites: The suites to evaluate on.
        steps: Number of steps in the whole run.
        policy: The model's tokenizer and picture reader; the engine has the weights.
        gathered: A context in which a transformers engine has the weights; all processes enter it together.
        ranks: This process and the others.
        out: The run folder.
        record: Records the metrics.
        checkpoints: Points its link `best` to the best checkpoint after each evaluation.
        done: Number of steps done before this run resumed.
        stop_requested: Whether this process is to stop: an evaluation in progress is then abandoned, and
            repeated when the run resumes.
        announced: Whether the run has already reported how the machine is protected from code.
    """

    def __init__(
        self,
        recipe: OnlineEval | None,
        suites: Sequence[Loaded],
        *,
        steps: int,
        policy: Policy,
        gathered: Callable[[], AbstractContextManager[object]],
        ranks: Ranks,
        out: Path,
        record: Record,
        checkpoints: CheckpointManager,
        done: int,
        stop_requested: Callable[[], bool],
        announced: bool = False,
    ) -> None:
        self._recipe = recipe
        self._suites = suites
        self._steps = steps
        self._policy = policy
        self._gathered = gathered
        self._ranks = ranks
        self._out = out
        self._record = record
        self._checkpoints = checkpoints
        self._done = done
        self._stop_requested = stop_requested
        self._announced = announced
        self._codes: dict[str, bool] = {}
        """Suite name -> whether one of its questions may run code."""

    def due(self, step: int) -> list[Loaded]:
        """The suites to evaluate after `step` steps; the same in all processes."""
        if self._recipe is None or (step % self._recipe.every and step != self._steps):
            return []
        known = self._record.evaluated if step == self._done else ()
        return [one for one in self._suites if one.name not in known]

    async def after(self, step: int, engine: Engine) -> bool:
        """Evaluate everything due after `step` steps; returns whether it was abandoned. See `of`."""
        for one in self.due(step):
            if await self.of(one, step, engine):
                return True
        return False

    async def of(self, one: Loaded, step: int, engine: Engine) -> bool:
        """Evaluate one suite after `step` steps.

        Returns:
            Whether it was abandoned in all processes, because one was told to stop.

        Args:
            one: The suite.
            step: Steps done.
            engine: An engine that has taken the weights.

        Raises:
            RunFailed: In all processes, if an engine has died or too many replies are unscored.
        """
        began = time.monotonic()
        found: _Share | None = _Share()
        failure: RunFailed | None = None
        try:
            with self._gathered():
                found = await self._unless_stopped(self._drawn(one, step, engine))
        except Exception as error:
            failure = _failed(one, error)
            if failure is None:
                raise
        shares = self._ranks.gather((found, failure))
        # If one process has lost its engine, all stop together.
        for _, failed in shares:
            if failed is not None:
                raise failed
        whole = [share for share, _ in shares if share is not None]
        if len(whole) < len(shares):
            return True
        suite = one.suite
        everyone = [t for share in whole for t in share.trajectories]
        check_unscored(everyone, suite.reward.max_unscored)
        rows = evaluated(
            one.name,
            everyone,
            self._scores(one, whole),
            with_chance([row for share in whole for row in share.audited], suite.reward.evidence),
            evidence_score=suite.reward.evidence.full,
            max_unaudited=suite.reward.max_unscored,
            seed=suite.seed,
        )
        overall = rows[row_name(one.name)]
        overall["seconds_eval"] = time.monotonic() - began
        self._record.write(step, rows)
        # A checkpoint that is still being written may be the best.
        self._checkpoints.finish()
        if self._ranks.first:
            self._checkpoints.point()
            if doubt := self._checkpoints.doubt(one.name, overall):
                say(doubt)
            score = f"{overall['score']:.4g}" if "score" in overall else "unscored"
            say(f"eval after step {step}: {one.name} {score}, in {overall['seconds_eval']:.0f} s")
        return False

    def _scores(self, one: Loaded, whole: Sequence[_Share]) -> Scores:
        """The suite's scores over all shares.

        Raises:
            RunFailed: In all processes, if a user's own scorer fails in one of them.
        """
        found: Scores = {}
        failure: RunFailed | None = None
        marks = [mark for share in whole for mark in share.marks]
        try:
            fallbacks = [mark for share in whole for mark in share.fallbacks]
            found = scores_of(one.suite.scorer, marks, fallbacks)
        except Exception as error:
            failure = _failed(one, error)
            if failure is None:
                raise
        for failed in self._ranks.gather(failure):
            if failed is not None:
                raise failed
        return found

    async def _unless_stopped(self, drawing: Awaitable[_Share]) -> _Share | None:
        """The result of an evaluation; None if this process is told to stop before its end."""
        task = asyncio.ensure_future(drawing)
        try:
            while not task.done() and not self._stop_requested():
                await asyncio.wait({task}, timeout=LOOK)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        return None if task.cancelled() and self._stop_requested() else task.result()

    async def _drawn(self, one: Loaded, step: int, engine: Engine) -> _Share:
        """This process's share of a suite: generated, scored and audited in portions."""
        suite, ranks = one.suite, self._ranks
        pictures = self._policy.pictures.within(suite.images)
        transform = black if suite.call_images == "black" else None
        questions = read_questions(suite, limit=one.limit, rank=ranks.rank, world=ranks.world)
        found = _Share()
        searches = searches_of(self._out, one.name, ranks.rank)
        judgements = self._out / f"judge-eval-{ranks.rank}.jsonl"
        scoring = Scorer(suite.reward, judge_cache=judgements, shown=pictures.shown_size)
        runs_code = await asyncio.to_thread(self._runs_code, one)
        announced = ranks.first and runs_code and not self._announced
        self._announced |= announced
        async with (
            open_agent(
                suite,
                engine,
                self._policy.chat,
                pictures,
                record=searches,
                announced=announced,
                runs_code=runs_code,
                observation_transform=transform,
                judges=scoring.judges,
            ) as agent,
            scoring as scorer,
        ):
            for window in windows(questions, rollouts=suite.rollouts, done={}):
                await self._portion(window, one, step, agent, scorer, found)
        return found

    def _runs_code(self, one: Loaded) -> bool:
        """Whether a question of the suite may run code; all questions are read unless one does."""
        if one.name not in self._codes:
            records = islice(read_records(one.suite), one.limit)
            self._codes[one.name] = any(map(needs_sandbox, records))
        return self._codes[one.name]

    async def _portion(
        self, window: Window, one: Loaded, step: int, agent: Agent, scorer: Scorer, found: _Share
    ) -> None:
        samples = [sample for sample, _ in window.questions]
        jobs = self._jobs(window, one, step)
        scored = await draw_and_score(agent, scorer, jobs, samples, iou=thresholds_of(one.suite.reward))
        by_id = {sample.id: sample for sample in samples}
        rule = rule_of(one.suite)
        scored = [graded(t, as_shown(by_id[t.sample_id], t), rule, one.suite.reward) for t in scored]
        boxed = [t for t in scored if by_id[t.sample_id].evidence]
        found.audited.extend(await audit(samples, boxed, scorer.judges))
        marks = [mark_of(t, scorer.with_shown_size(by_id[t.sample_id], t)) for t in scored]
        found.marks.extend(marks)
        found.fallbacks.extend(with_fallback(mark, t) for mark, t in zip(marks, scored, strict=True))
        found.trajectories.extend(map(slim, scored))

    def _jobs(self, window: Window, one: Loaded, step: int) -> list[Job]:
        ranks, suite = self._ranks, one.suite
        numbered = enumerate(window.questions, start=window.first)
        return [
            Job(
                sample=sample,
                images=images,
                group=number * ranks.world + ranks.rank,
                rollout=rollout,
                policy_version=step,
                # As in a separate evaluation, so that random numbers are the same after every step.
                key=(suite.seed, 0, number * ranks.world + ranks.rank, rollout),
                apart=True,
            )
            for number, (sample, images) in numbered
            for rollout in range(suite.rollouts)
        ]


def searches_of(out: Path, suite: str, rank: int) -> Path:
    """The file that records web results in evaluations of a suite, each with its own record and budget.

    Args:
        out: The run folder.
        suite: The suite's name.
        rank: Rank of the process.
    """
    return out / f"search-eval-{suite}-{rank}.jsonl"


def _failed(one: Loaded, error: Exception) -> RunFailed | None:
    """One process's failure as that of the run, which then saves what is trained; None: a bug of ours."""
    if isinstance(error, RunFailed) or not isinstance(error, VtuneError):
        return run_failure(error)
    where = "; ".join(text for text in (f"eval suite {one.name}", error.where) if text)
    return RunFailed(error.what, where=where, fix=error.fix)

"""One portion of an evaluation: its rollouts, drawn or as they ended before, and their scores."""

from collections.abc import Callable, Sequence
from pathlib import Path

from vtune.reward.score import Scorer
from vtune.rollout.agent import Agent, Job
from vtune.runs.evaluate.ended import keep, lacks_score, restored
from vtune.runs.evaluate.grading import as_shown, graded, rule_of, thresholds_of, waits_for_model
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.evaluate.windows import Window
from vtune.schema.trajectory import Trajectory


async def roll_out(
    suite: EvalSuite, out: Path, window: Window, agent: Agent, advance: Callable[[], None]
) -> list[Trajectory]:
    """The rollouts of a portion, in order; those that ended before are not drawn again.

    Args:
        suite: Which is evaluated.
        out: Folder of the evaluation; every rollout is kept there as soon as it has ended.
        window: The portion.
        agent: Draws.
        advance: Called after each that is drawn.
    """
    jobs = _jobs(suite, window)
    before = {(job.group, job.rollout): restored(out, job) for job in jobs}
    missing = [job for job in jobs if before[job.group, job.rollout] is None]
    drawn = await agent.run(missing, advance, lambda _, trajectory: keep(out, trajectory))
    now = {(trajectory.group, trajectory.rollout): trajectory for trajectory in drawn}
    return [before[job.group, job.rollout] or now[job.group, job.rollout] for job in jobs]


async def score_window(
    suite: EvalSuite, window: Window, trajectories: Sequence[Trajectory], scorer: Scorer
) -> list[Trajectory]:
    """The rollouts of a portion with their scores, in order; those that were scored before keep theirs."""
    rule = rule_of(suite)
    samples = {sample.id: sample for sample, _ in window.questions}
    open_ones = [trajectory for trajectory in trajectories if lacks_score(trajectory)]
    scored = await scorer.score(samples.values(), open_ones, iou=thresholds_of(suite.reward))
    if not waits_for_model(suite):
        scored = [graded(t, as_shown(samples[t.sample_id], t), rule, suite.reward) for t in scored]
    now = {(trajectory.group, trajectory.rollout): trajectory for trajectory in scored}
    return [now.get((trajectory.group, trajectory.rollout), trajectory) for trajectory in trajectories]


def _jobs(suite: EvalSuite, window: Window) -> list[Job]:
    return [
        Job(
            sample=sample,
            images=images,
            group=number,
            rollout=rollout,
            policy_version=0,
            key=(suite.seed, 0, number, rollout),
        )
        for number, (sample, images) in enumerate(window.questions, start=window.first)
        for rollout in range(suite.rollouts)
    ]

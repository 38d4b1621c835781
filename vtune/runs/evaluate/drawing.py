"""One portion of an evaluation: its rollouts, drawn or as they ended before, and their scores."""

from collections.abc import Callable
from pathlib import Path

from vtune.reward.score import Scorer
from vtune.rollout.agent import Agent, Job
from vtune.runs.agent.scoring import draw_and_score
from vtune.runs.evaluate.grading import as_shown, graded, rule_of, thresholds_of, waits_for_model
from vtune.runs.evaluate.rollout_files import keep, lacks_score, restored
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.evaluate.windows import Window
from vtune.schema.trajectory import Trajectory


async def draw_window(
    suite: EvalSuite, out: Path, window: Window, agent: Agent, scorer: Scorer, advance: Callable[[], None]
) -> list[Trajectory]:
    """The scored rollouts of a portion, in order.

    Those that ended before are not drawn again, and scored again only where they have no score.

    Args:
        suite: Which is evaluated.
        out: Folder of the evaluation; every rollout is kept there as soon as it has ended.
        window: The portion.
        agent: Draws.
        scorer: Scores.
        advance: Called after each that is drawn.
    """
    rule, iou = rule_of(suite), thresholds_of(suite.reward)
    samples = {sample.id: sample for sample, _ in window.questions}
    jobs = _jobs(suite, window)
    kept = {(job.group, job.rollout): restored(out, job) for job in jobs}
    before = {key: trajectory for key, trajectory in kept.items() if trajectory is not None}
    missing = [job for job in jobs if (job.group, job.rollout) not in before]
    scored = await draw_and_score(
        agent,
        scorer,
        missing,
        list(samples.values()),
        iou=iou,
        done=advance,
        ended=lambda _, trajectory: keep(out, trajectory),
    )
    unscored = [trajectory for trajectory in before.values() if lacks_score(trajectory)]
    scored += await scorer.score(samples.values(), unscored, iou=iou)
    if not waits_for_model(suite):
        scored = [graded(t, as_shown(samples[t.sample_id], t), rule, suite.reward) for t in scored]
    found = before | {(trajectory.group, trajectory.rollout): trajectory for trajectory in scored}
    return [found[job.group, job.rollout] for job in jobs]


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

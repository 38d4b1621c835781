"""One portion of an evaluation: its rollouts, newly generated or kept from before, and their scores."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vtune.reward.checking import check_unscored
from vtune.reward.score import Scorer
from vtune.rollout.agent import Agent, Job
from vtune.runs.agent.scoring import draw_and_score
from vtune.runs.evaluate.grading import as_shown, graded, rule_of, thresholds_of, waits_for_model
from vtune.runs.evaluate.rollout_files import keep, lacks_score, restored
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.evaluate.unjudged import check_silent
from vtune.runs.evaluate.windows import Window, is_unscored
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory


async def draw_window(
    suite: EvalSuite, out: Path, window: Window, agent: Agent, scorer: Scorer, advance: Callable[[], None]
) -> list[Trajectory]:
    """The scored rollouts of a portion, in order.

    Rollouts that ended before are not generated again, and only scored again if they have no score.

    Args:
        suite: The suite that is evaluated.
        out: The evaluation's folder; every rollout is stored there as soon as it ends.
        window: The portion.
        agent: Generates the rollouts.
        scorer: Scores them.
        advance: Called after each generated rollout.
    """
    iou = thresholds_of(suite.reward)
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
    scored = by_rule(suite, samples, scored)
    found = before | {(trajectory.group, trajectory.rollout): trajectory for trajectory in scored}
    return [found[job.group, job.rollout] for job in jobs]


def by_rule(
    suite: EvalSuite, samples: Mapping[str, Sample], scored: Sequence[Trajectory]
) -> list[Trajectory]:
    """Scored trajectories with the grades of the suite's protocol, if these come from its own rule."""
    if waits_for_model(suite):
        return list(scored)
    rule = rule_of(suite)
    return [graded(t, as_shown(samples[t.sample_id], t), rule, suite.reward) for t in scored]


def check_scores(suite: EvalSuite, out: Path, scorer: Scorer, seen: Sequence[Trajectory], total: int) -> None:
    """Stop if more is unscored than allowed, whatever may still come.

    Args:
        suite: The suite that is evaluated.
        out: The evaluation's folder.
        scorer: The scorer that was used.
        seen: What has been scored so far, except what still waits for a scorer.
        total: Total number of rollouts.

    Raises:
        RunFailed: If too much is unscored; names what the judge did not reply to.
    """
    if sum(map(is_unscored, seen)) > suite.reward.max_unscored * total:
        check_silent(out, scorer.silent, total)
        check_unscored(seen, suite.reward.max_unscored)


def _jobs(suite: EvalSuite, window: Window) -> list[Job]:
    return [
        job_of(suite, sample, images, number, rollout)
        for number, (sample, images) in enumerate(window.questions, start=window.first)
        for rollout in range(suite.rollouts)
    ]


def job_of(suite: EvalSuite, sample: Sample, images: tuple[bytes, ...], number: int, rollout: int) -> Job:
    """One rollout of an evaluation.

    Args:
        suite: The suite that is evaluated.
        sample: The question.
        images: Its encoded pictures.
        number: Its position in the whole evaluation.
        rollout: Which of its rollouts.
    """
    return Job(
        sample=sample,
        images=images,
        group=number,
        rollout=rollout,
        policy_version=0,
        key=(suite.seed, 0, number, rollout),
    )

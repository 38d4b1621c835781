"""Asks the judge of a suite's reward in batches, once all rollouts have been generated."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from vtune.errors import RecipeError
from vtune.report.progress import say
from vtune.reward.audit import audit
from vtune.reward.score import Scorer
from vtune.runs.evaluate.drawing import by_rule, check_scores
from vtune.runs.evaluate.grading import thresholds_of
from vtune.runs.evaluate.rejudged import BATCH
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.evaluate.unjudged import Key, check_silent
from vtune.runs.evaluate.windows import portions, slim, stored, waits
from vtune.schema.parquet import read_trajectories, write_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

ROWS, BYTES = 256, 128 * 2**20
"""Limits on trajectories and bytes of their pictures in memory while the judge is asked about them; ours."""


def check_deferred(suite: EvalSuite, *, looks: int) -> None:
    """Check that no conversation needs the judge's answer at once.

    Args:
        suite: The suite to be evaluated.
        looks: Number of questions whose calls the judge judges.

    Raises:
        RecipeError: If conversations do.
    """
    if suite.reward.asks_in_batches and suite.rollout.feedback and looks:
        raise RecipeError(
            "`reward.judge.batch`: rollout.feedback needs the judge's verdict on a look at once",
            where=f"{looks} questions whose looks a model judges",
            fix="set reward.judge.batch=false, or rollout.feedback=false",
        )


async def judge_deferred(
    suite: EvalSuite,
    out: Path,
    files: Sequence[Path],
    samples: Mapping[str, Sample],
    scorer: Scorer,
    *,
    looks: bool,
) -> None:
    """Ask the judge in batches about all rollouts, and write the scores that depend on it.

    Afterwards its answers for the audit are available, too.

    Args:
        suite: The suite that is evaluated.
        out: The evaluation's folder.
        files: Its portions; `scorer.silent` names the rollouts in them that wait.
        samples: Id -> question, without pictures.
        scorer: The scorer whose judge was deferred.
        looks: Whether the judge also says what calls show.

    Raises:
        RunFailed: If the judge did not answer, or too much is unscored for other reasons; its answers are
            kept.
    """
    waiting = frozenset(scorer.silent)
    if suite.reward.judge is None or not (waiting or looks):
        return
    say(f"{suite.reward.judge.model} is asked in batches, which may take a day; --resume continues with them")
    await scorer.ask_in_batches(
        partial(_ask_all, suite, files, samples, scorer, waiting, looks=looks),
        state=out / BATCH,
        poll_s=suite.reward.judge.batch_poll_s,
        tell=say,
    )
    seen: list[Trajectory] = []
    total = 0
    for path in files:
        group = list(read_trajectories(path))
        total += len(group)
        if any(_key(trajectory) in waiting for trajectory in group):
            group = await _scored(suite, group, samples, scorer, waiting)
            write_trajectories(path, group, run=out)
        seen += (slim(trajectory) for trajectory in group if not waits(trajectory))
    check_scores(suite, out, scorer, seen, total)
    check_silent(out, scorer.silent, total)


async def _ask_all(
    suite: EvalSuite,
    files: Sequence[Path],
    samples: Mapping[str, Sample],
    scorer: Scorer,
    waiting: frozenset[Key],
    *,
    looks: bool,
) -> None:
    """Ask everything that scores and the audit of looks need; the results are discarded."""
    for group in portions(stored(files), rows=ROWS, size=BYTES):
        group = await _scored(suite, group, samples, scorer, waiting)
        if looks:
            await audit([samples[trajectory.sample_id] for trajectory in group], group, scorer.judges)


async def _scored(
    suite: EvalSuite,
    group: Sequence[Trajectory],
    samples: Mapping[str, Sample],
    scorer: Scorer,
    waiting: frozenset[Key],
) -> list[Trajectory]:
    """The trajectories, with those that waited for the judge scored again."""
    lacking = [trajectory for trajectory in group if _key(trajectory) in waiting]
    asked = {trajectory.sample_id: _whole(samples, trajectory) for trajectory in lacking}
    scored = await scorer.score(asked.values(), lacking, iou=thresholds_of(suite.reward))
    again = {_key(trajectory): trajectory for trajectory in by_rule(suite, samples, scored)}
    return [again.get(_key(trajectory), trajectory) for trajectory in group]


def _whole(samples: Mapping[str, Sample], trajectory: Trajectory) -> Sample:
    """The question of a trajectory, with its pictures taken from the trajectory."""
    sample = samples[trajectory.sample_id]
    return replace(sample, images=trajectory.images[: len(sample.images)])


def _key(trajectory: Trajectory) -> Key:
    return trajectory.sample_id, trajectory.rollout

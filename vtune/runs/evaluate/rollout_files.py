"""Rollouts of an unfinished portion, each in its own file as soon as it has ended.

A portion is written when all of it has been drawn and scored. What ended before an interruption, or before
its judge failed, is taken from here: it is not drawn again.
"""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from vtune.rollout.agent import Job
from vtune.runs.evaluate.windows import drawn, is_unscored, kept_file, parts, waits
from vtune.schema.parquet import read_trajectories, write_trajectories
from vtune.schema.trajectory import Trajectory

ENDED = "ended"
"""Folder of an unfinished evaluation."""


def _place(out: Path, question: int, rollout: int) -> Path:
    return out / ENDED / f"{question:08d}-{rollout:04d}.parquet"


def keep(out: Path, trajectory: Trajectory) -> None:
    """Keep a rollout that has ended, unless it failed: then it is generated again.

    Args:
        out: Folder of the evaluation.
        trajectory: Its `group` is the number of its question.
    """
    if trajectory.stop_reason != "error":
        path = _place(out, trajectory.group, trajectory.rollout)
        write_trajectories(path, [trajectory], run=out)


def kept(out: Path) -> int:
    """How many rollouts of unfinished portions have ended."""
    return sum(1 for _ in (out / ENDED).glob("[0-9]*.parquet"))


def restored(out: Path, job: Job) -> Trajectory | None:
    """The rollout of a job, if it has ended before; it shares the job's pictures, which memory holds once.

    Raises:
        DataError: If its file is damaged.
    """
    path = _place(out, job.group, job.rollout)
    if not path.exists():
        return None
    with kept_file(path):
        (trajectory,) = read_trajectories(path)
    images = [
        replace(picture, data=job.images[index])
        if index < len(job.images) and picture.data == job.images[index]
        else picture
        for index, picture in enumerate(trajectory.images)
    ]
    return replace(trajectory, images=tuple(images))


def forget(out: Path, questions: Iterable[int], *, rollouts: int) -> None:
    """Remove the rollouts of questions whose portion has been written."""
    for question in questions:
        for rollout in range(rollouts):
            _place(out, question, rollout).unlink(missing_ok=True)


def forget_all(out: Path) -> None:
    """Remove the folder: the evaluation is finished."""
    if (out / ENDED).exists():
        shutil.rmtree(out / ENDED)


def reopen_unscored(out: Path, folder: Path, *, rollouts: int) -> None:
    """Reopen the portions that hold a trajectory without a score.

    What failed while it was drawn is drawn again; what was drawn and not scored is only scored again, and
    what has a score keeps it. A portion that only waits for an official scorer stays.

    Args:
        out: Folder of the evaluation.
        folder: Of its portions.
        rollouts: Of each question.
    """
    counts = drawn(folder, rollouts=rollouts)
    for path, (first, count) in zip(parts(folder), counts.items(), strict=True):
        if any(map(lacks_score, read_trajectories(path))):
            for trajectory in read_trajectories(path):
                keep(out, trajectory)
            path.unlink()
        else:
            # It was written, and what it was made of perhaps not yet removed.
            forget(out, range(first, first + count), rollouts=rollouts)


def lacks_score(trajectory: Trajectory) -> bool:
    """Whether it has no score, and does not wait for an official scorer."""
    return is_unscored(trajectory) and not waits(trajectory)

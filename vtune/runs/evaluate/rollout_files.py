"""Rollouts of an unfinished portion, each in its own file as soon as it has ended.

A portion is written once all of it is generated and scored. Rollouts that ended before an interruption, or
before their judge failed, are read from here and not generated again.
"""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from vtune.rollout.agent import Job
from vtune.runs.evaluate.windows import drawn, is_unscored, kept_file, parts, waits
from vtune.schema.parquet import read_trajectories, write_trajectories
from vtune.schema.trajectory import Trajectory

ENDED = "ended"
"""Subfolder in an unfinished evaluation's folder."""


def _place(out: Path, question: int, rollout: int) -> Path:
    return out / ENDED / f"{question:08d}-{rollout:04d}.parquet"


def keep(out: Path, trajectory: Trajectory) -> None:
    """Store a rollout that has ended, unless it failed: then it is generated again.

    Args:
        out: The evaluation's folder.
        trajectory: Its `group` is the number of its question.
    """
    if trajectory.stop_reason != "error":
        path = _place(out, trajectory.group, trajectory.rollout)
        write_trajectories(path, [trajectory], run=out)


def kept(out: Path) -> int:
    """Number of ended rollouts in unfinished portions."""
    return sum(1 for _ in (out / ENDED).glob("[0-9]*.parquet"))


def kept_rollouts(out: Path) -> Iterator[Trajectory]:
    """The ended rollouts in unfinished portions.

    Raises:
        DataError: If a file is damaged.
    """
    for path in sorted((out / ENDED).glob("[0-9]*.parquet")):
        with kept_file(path):
            yield from read_trajectories(path)


def restored(out: Path, job: Job) -> Trajectory | None:
    """The rollout of a job, if it has ended before; it shares the job's pictures to save memory.

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
    """Reopen the portions that contain a trajectory without a score.

    Failed rollouts are generated again; unscored ones are only scored again, and scores are kept. A portion
    that only waits for an official scorer stays closed.

    Args:
        out: The evaluation's folder.
        folder: Folder of its portions.
        rollouts: Rollouts per question.
    """
    counts = drawn(folder, rollouts=rollouts)
    for path, (first, count) in zip(parts(folder), counts.items(), strict=True):
        if any(map(lacks_score, read_trajectories(path))):
            for trajectory in read_trajectories(path):
                keep(out, trajectory)
            path.unlink()
        else:
            # It was written, but its rollout files may not have been removed yet.
            forget(out, range(first, first + count), rollouts=rollouts)


def lacks_score(trajectory: Trajectory) -> bool:
    """Whether it has no score and does not wait for an official scorer."""
    return is_unscored(trajectory) and not waits(trajectory)

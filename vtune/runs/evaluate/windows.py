"""A long evaluation in portions: each is generated, scored and written before the next one starts.

Written portions are not generated again, nor are rollouts of the open portion that have ended
(`vtune.runs.evaluate.rollout_files`); at most one portion is in memory.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from vtune.errors import DataError
from vtune.runs.evaluate.questions import Question
from vtune.schema.parquet import count_rows, read_trajectories
from vtune.schema.trajectory import Trajectory
from vtune.verifiers.verifier import ELSEWHERE

ROLLOUTS = 1024
"""A portion holds at most this many rollouts (ours: enough that its tail, where few run, is short) …"""
BYTES = 256 * 2**20
"""… and is closed once its encoded pictures reach this size (ours)."""

LENGTHS = 4096
"""Number of distinct token counts whose masks are cached for sharing (ours)."""


@dataclass(frozen=True, slots=True)
class Window:
    """Questions that are generated together."""

    first: int
    """Position of the first of them in the whole evaluation."""
    questions: tuple[Question, ...]


def windows(questions: Iterable[Question], *, rollouts: int, done: Mapping[int, int]) -> Iterator[Window]:
    """The portions that are still to be generated.

    Args:
        questions: All questions, in order.
        rollouts: Rollouts per question.
        done: First question -> number of questions, for each finished portion.
    """
    held: list[Question] = []
    first = size = skip = 0
    for number, question in enumerate(questions):
        if number in done:
            if held:
                yield Window(first, tuple(held))
            held, size, skip = [], 0, number + done[number]
        if number < skip:
            continue
        if not held:
            first = number
        held.append(question)
        size += sum(map(len, question[1]))
        if len(held) * rollouts >= ROLLOUTS or size >= BYTES:
            yield Window(first, tuple(held))
            held, size = [], 0
    if held:
        yield Window(first, tuple(held))


def part(folder: Path, first: int) -> Path:
    """The file of the portion that starts with question number `first`."""
    return folder / f"from-{first:08d}.parquet"


def parts(folder: Path) -> list[Path]:
    """The files of all finished portions, in order."""
    return sorted(folder.glob("from-*.parquet"))


def drawn(folder: Path, *, rollouts: int) -> dict[int, int]:
    """First question -> number of questions, for each finished portion.

    Raises:
        DataError: If a portion cannot be read.
    """
    found = {}
    for path in parts(folder):
        with kept_file(path):
            found[int(path.stem.removeprefix("from-"))] = count_rows(path) // rollouts
    return found


@contextmanager
def kept_file(path: Path) -> Iterator[None]:
    """Adds a fix to errors from reading stored files: e.g. a file left empty by a power loss can be removed.

    Raises:
        DataError: As reading does, with the fix for this case.
    """
    try:
        yield
    except DataError as error:
        fix = f"remove {path}: --resume generates again only what it held"
        raise DataError(error.what, where=error.where, fix=fix) from None


def stored(files: Sequence[Path]) -> Iterator[Trajectory]:
    """The trajectories of portions, one after the other."""
    return chain.from_iterable(map(read_trajectories, files))


def is_unscored(trajectory: Trajectory) -> bool:
    """Whether a trajectory has no score."""
    return trajectory.reward is None or trajectory.reward.total is None


LEFT_OUT = f"{ELSEWHERE}: the official scorer leaves it out"
"""Why a reply stays unscored that the benchmark's means must not include."""


def is_left_out(trajectory: Trajectory) -> bool:
    """Whether the official scorer has left it out."""
    return trajectory.reward is not None and f"accuracy: {LEFT_OUT}" in trajectory.reward.why


def waits(trajectory: Trajectory) -> bool:
    """Whether it is unscored because only an official scorer can tell (`vtune.runs.evaluate.scorers`)."""
    reward = trajectory.reward
    return reward is not None and reward.accuracy is None and f"accuracy: {ELSEWHERE}" in reward.why


def portions(trajectories: Iterable[Trajectory], *, rows: int, size: int) -> Iterator[list[Trajectory]]:
    """Trajectories in groups that fit into memory.

    Args:
        trajectories: In order.
        rows: A group holds at most this many …
        size: … and is closed once its encoded pictures reach this many bytes.
    """
    held: list[Trajectory] = []
    held_size = 0
    for trajectory in trajectories:
        held.append(trajectory)
        held_size += sum(len(picture.data or b"") for picture in trajectory.images)
        if len(held) == rows or held_size >= size:
            yield held
            held, held_size = [], 0
    if held:
        yield held


def slim(trajectory: Trajectory) -> Trajectory:
    """The trajectory reduced to what metrics need, without pictures and tokens.

    Only the sum of the loss mask is kept: the number of sampled tokens.
    """
    return replace(
        trajectory,
        images=(),
        token_ids=(),
        logprobs=(),
        weight_versions=(),
        entropies=(),
        loss_mask=_all_sampled(sum(trajectory.loss_mask)),
    )


@functools.lru_cache(maxsize=LENGTHS)
def _all_sampled(count: int) -> tuple[bool, ...]:
    """A mask of sampled tokens only, cached because many trajectories share it."""
    return (True,) * count

"""Trajectories in and out of Parquet files, with the pictures that many of them share."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from vtune.errors import DataError
from vtune.files.writing import write_atomically
from vtune.schema.fields import Row
from vtune.schema.message import Picture
from vtune.schema.parquet.pictures import load_picture
from vtune.schema.parquet.tables import at_row, rows_with, write_table
from vtune.schema.trajectory import Trajectory
from vtune.schema.trajectory_row import (
    LATE_COLUMNS,
    TRAJECTORY_COLUMNS,
    trajectory_from_row,
    trajectory_to_row,
)

LARGE_INPUT = 2**20
"""Bytes from which a picture is shared by rollouts (ours): below, a single file is easier to move."""
INPUTS = "inputs"
"""Folder of a run with the pictures that its rollouts share."""


def read_trajectories(path: Path) -> Iterator[Trajectory]:
    """The trajectories of a file, in file order.

    Raises:
        DataError: At the first row that is not a valid trajectory, naming file, row (from 0) and column; if
            the file is missing or is not Parquet.
    """
    for trajectory in scan_trajectories(path):
        if isinstance(trajectory, DataError):
            raise trajectory
        yield trajectory


def scan_trajectories(path: Path) -> Iterator[Trajectory | DataError]:
    """One entry per row: the trajectory, or the error that `read_trajectories` would raise there.

    Raises:
        DataError: If the file itself cannot be read.
    """
    needs = [name for name in TRAJECTORY_COLUMNS.names if name not in LATE_COLUMNS]
    for number, row in rows_with(path, needs):
        try:
            yield with_inputs(trajectory_from_row(row), path.parent)
        except DataError as error:
            yield at_row(path, number, error)


def write_trajectories(path: Path, trajectories: Iterable[Trajectory], *, run: Path | None = None) -> int:
    """Write a trajectory file and return the number of rows.

    Args:
        path: The file.
        trajectories: Its rows.
        run: Folder of the run: large pictures of questions are stored in its `inputs`, each once
            for all rollouts, and rows refer to them by path. None: all pictures are in the rows.

    Raises:
        DataError: If a trajectory contradicts itself. Then there is no new file.
    """
    if run is not None:
        trajectories = (_named_inputs(trajectory, run / INPUTS, path.parent) for trajectory in trajectories)
    option = "--out" if run is None else None
    return write_table(path, TRAJECTORY_COLUMNS, _trajectory_rows(path, trajectories), option=option)


def with_inputs(trajectory: Trajectory, base: Path) -> Trajectory:
    """The trajectory with the bytes of the pictures that it shares with others of its run.

    Raises:
        DataError: If a picture no longer exists.
    """
    if not any(map(_is_shared, trajectory.images)):
        return trajectory
    try:
        images = tuple(
            replace(picture, data=load_picture(picture, base)) if _is_shared(picture) else picture
            for picture in trajectory.images
        )
    except DataError as error:
        fix = f"keep the run's folder {INPUTS} where it was beside its trajectories, also in a copy"
        raise DataError(error.what, where=error.where, fix=fix) from None
    return replace(trajectory, images=images)


def _is_shared(picture: Picture) -> bool:
    return picture.data is None and picture.path is not None and Path(picture.path).parent.name == INPUTS


def _named_inputs(trajectory: Trajectory, inputs: Path, base: Path) -> Trajectory:
    """The trajectory with its large inputs stored in a folder, as paths relative to `base`."""
    images = []
    for picture in trajectory.images:
        if picture.origin == "input" and picture.data is not None and len(picture.data) > LARGE_INPUT:
            stored = inputs / hashlib.sha256(picture.data).hexdigest()[:32]
            if not stored.exists():
                write_atomically(stored, picture.data, option=None)
            path = os.path.relpath(stored, base)
            picture = replace(picture, data=None, path=path)
        images.append(picture)
    return replace(trajectory, images=tuple(images))


def _trajectory_rows(path: Path, trajectories: Iterable[Trajectory]) -> Iterator[Row]:
    for number, trajectory in enumerate(trajectories):
        try:
            yield trajectory_to_row(trajectory)
        except DataError as error:
            raise at_row(path, number, error) from None

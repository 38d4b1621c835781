"""Random access to record files that may exceed memory, in a reproducible shuffled order."""

import random
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from vtune.errors import DataError
from vtune.schema.fields import Row
from vtune.schema.parquet import at_row, columns, group_sizes, read_group, with_inputs
from vtune.schema.sample import Sample
from vtune.schema.sample_row import SAMPLE_NEEDS, sample_from_row
from vtune.schema.trajectory import Trajectory
from vtune.schema.trajectory_row import TRAJECTORY_COLUMNS, trajectory_from_row

WINDOW = 16
"""Row groups held in memory and shuffled together: at 32 MB each, half a gigabyte. Ours."""

Record = TypeVar("Record")


class Store(Generic[Record]):
    """The rows of several Parquet files as one sequence.

    Args:
        paths: The files, in order.
        needs: Columns that each of them must have.
        parse: Row on disk, its file and row number (for errors) -> record.

    Raises:
        DataError: If a file cannot be read or lacks a column, or all of them are empty.
    """

    def __init__(
        self, paths: Sequence[Path], needs: Sequence[str], parse: Callable[[Row, Path, int], Record]
    ) -> None:
        self._parse = parse
        self._groups: list[tuple[Path, int, int]] = []
        sizes: list[int] = []
        for path in paths:
            _check_columns(path, needs)
            first = 0
            for index, size in enumerate(group_sizes(path)):
                self._groups.append((path, index, first))
                sizes.append(size)
                first += size
        self._sizes = sizes
        self._starts = [0, *accumulate(sizes)]
        if not self._starts[-1]:
            raise DataError("there is no row in the data", where=", ".join(map(str, paths)))
        self._turn = Lock()
        """Serialises threads that read at the same time."""
        self._loaded: OrderedDict[int, list[Record]] = OrderedDict()
        self._orders: OrderedDict[tuple[int, int], list[int]] = OrderedDict()

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, number: int) -> Record:
        if not 0 <= number < len(self):
            raise IndexError(number)
        group = bisect_right(self._starts, number) - 1
        with self._turn:
            rows = self._group(group)
        return rows[number - self._starts[group]]

    def shuffled(self, position: int, *, seed: int) -> Record:
        """The record at a position of an endless stream: every epoch contains each row once, in a new order.

        Depends only on (position, seed), so a resumed run continues with the very next sample.
        """
        epoch, offset = divmod(position, len(self))
        with self._turn:
            order = self._orders.get((epoch, seed))
            if order is None:
                order = self._orders[epoch, seed] = self._order(random.Random(f"order {seed} {epoch}"))
                while len(self._orders) > 2:
                    self._orders.popitem(last=False)
        return self[order[offset]]

    def _order(self, rng: random.Random) -> list[int]:
        # Shuffle the row groups, then the rows within a few neighbouring groups: reading stays local.
        groups = list(range(len(self._groups)))
        rng.shuffle(groups)
        order: list[int] = []
        for start in range(0, len(groups), WINDOW):
            rows = [
                row
                for group in groups[start : start + WINDOW]
                for row in range(self._starts[group], self._starts[group + 1])
            ]
            rng.shuffle(rows)
            order += rows
        return order

    def _group(self, group: int) -> list[Record]:
        found = self._loaded.get(group)
        if found is not None:
            self._loaded.move_to_end(group)
            return found
        path, index, first = self._groups[group]
        rows = read_group(path, index)
        found = self._loaded[group] = [self._parse(row, path, first + i) for i, row in enumerate(rows)]
        if len(self._loaded) > WINDOW:
            self._loaded.popitem(last=False)
        return found


def sample_store(paths: Sequence[Path]) -> Store[tuple[Sample, Path]]:
    """Samples with the folder that their picture paths are relative to."""

    def parse(row: Row, path: Path, number: int) -> tuple[Sample, Path]:
        try:
            return sample_from_row(row, place=f"{path.stem}/{number}", default_verifier=None), path.parent
        except DataError as error:
            raise at_row(path, number, error) from None

    return Store(paths, SAMPLE_NEEDS, parse)


def trajectory_store(paths: Sequence[Path]) -> Store[Trajectory]:
    """Trajectories, e.g. cold-start traces."""

    def parse(row: Row, path: Path, number: int) -> Trajectory:
        try:
            return with_inputs(trajectory_from_row(row), path.parent)
        except DataError as error:
            raise at_row(path, number, error) from None

    return Store(paths, TRAJECTORY_COLUMNS.names, parse)


def _check_columns(path: Path, needs: Sequence[str]) -> None:
    there = columns(path)
    for name in needs:
        if name not in there:
            raise DataError(
                f"the file has no column `{name}`",
                where=str(path),
                fix=f"its columns are {', '.join(there)}; is it the right kind of file?",
            )

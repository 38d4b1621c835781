"""Which trajectory files are removed when a run resumes from before them."""

from pathlib import Path

import pytest

from vtune.runs.train.trajectory_files import FOLDER, forget_trajectories, trajectory_file
from vtune.update.ranks import Ranks


@pytest.mark.parametrize("world", [1, 2])
def test_repeated_steps_are_removed_and_a_copy_is_kept(world: int, tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    mine = [
        trajectory_file(tmp_path, step, Ranks(rank, world, rank))
        for step in (2, 4, 1_000_000)
        for rank in range(world)
    ]
    copy = tmp_path / FOLDER / "step-000004-good.parquet"
    for file in (*mine, copy):
        file.touch()
    forget_trajectories(tmp_path, 4)
    assert {*(tmp_path / FOLDER).iterdir()} == {*mine[:world], copy}

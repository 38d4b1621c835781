"""The files of a run's trajectories: one per process and step that keeps them."""

import re
from pathlib import Path

from vtune.update.ranks import Ranks

FOLDER = "trajectories"


def trajectory_file(run: Path, step: int, ranks: Ranks) -> Path:
    """Where this process writes what it has drawn in a step."""
    own = "" if ranks.world == 1 else f"-rank-{ranks.rank}"
    return run / FOLDER / f"step-{step:06d}{own}.parquet"


def forget_trajectories(run: Path, first_step: int) -> None:
    """Remove the files of this step and of later ones, which a run that continues draws again.

    It need not write them again: it may keep fewer steps, end elsewhere, or have other processes. A copy
    beside them (`step-000020-good`) is somebody's, and stays.
    """
    for path in (run / FOLDER).glob("step-*.parquet"):
        name = re.fullmatch(r"step-(\d{6,})(-rank-\d+)?", path.stem)
        if name is not None and int(name[1]) >= first_step:
            path.unlink()

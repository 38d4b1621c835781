"""The files of a run's trajectories: one per process and step that keeps them."""

import re
from pathlib import Path

from vtune.update.ranks import Ranks

FOLDER = "trajectories"


def trajectory_file(run: Path, step: int, ranks: Ranks) -> Path:
    """The file to which this process writes the trajectories of a step."""
    own = "" if ranks.world == 1 else f"-rank-{ranks.rank}"
    return run / FOLDER / f"step-{step:06d}{own}.parquet"


def forget_trajectories(run: Path, first_step: int) -> None:
    """Remove the files of this step and later ones, which a resumed run generates again.

    The resumed run may not overwrite them: it may keep fewer steps, end elsewhere, or have a different number
    of processes. A copy beside them (`step-000020-good`) belongs to the user and is kept.
    """
    for path in (run / FOLDER).glob("step-*.parquet"):
        name = re.fullmatch(r"step-(\d{6,})(-rank-\d+)?", path.stem)
        if name is not None and int(name[1]) >= first_step:
            path.unlink()

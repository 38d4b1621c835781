"""The files of a run's trajectories: one per step that keeps them, and process."""

from pathlib import Path

from vtune.update.ranks import Ranks

FOLDER = "trajectories"


def trajectory_file(run: Path, step: int, ranks: Ranks) -> Path:
    """Where this process writes what it has drawn in a step."""
    own = "" if ranks.world == 1 else f"-rank-{ranks.rank}"
    return run / FOLDER / f"step-{step:06d}{own}.parquet"


def forget_trajectories(run: Path, first_step: int) -> None:
    """Remove the files of this step and of later ones, which a run that continues draws again.

    It need not write them again: it may keep fewer steps, end elsewhere, or have other processes.
    """
    for path in (run / FOLDER).glob("step-*.parquet"):
        number = path.stem.removeprefix("step-").partition("-")[0]
        if number.isdigit() and int(number) >= first_step:
            path.unlink()

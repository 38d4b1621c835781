"""A finished evaluation that is resumed: its results stay until the new ones are complete."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vtune.report.progress import say
from vtune.runs.evaluate.finished import RESULTS, TRAJECTORIES
from vtune.runs.evaluate.items import ITEMS
from vtune.runs.evaluate.rollout_files import forget_all
from vtune.runs.evaluate.windows import part
from vtune.schema.audit import forget_audit
from vtune.schema.parquet import read_trajectories, write_trajectories

SUITE = "suite.yaml"
"""File in an evaluation's folder: what was requested."""
RESUMED = "suite.resumed.yaml"
"""File beside it while earlier results exist: how the evaluation is resumed, perhaps with another grader."""
NEW = (ITEMS, TRAJECTORIES, RESULTS)
"""Files that replace earlier results, in this order; with the last, the evaluation is finished."""


def suite_file(out: Path) -> Path:
    """The suite with which `--resume` continues if the command names none."""
    return out / RESUMED if (out / RESUMED).is_file() else out / SUITE


def written_suite(out: Path) -> Path:
    """Where to write the suite for continuing; earlier results keep theirs."""
    if (out / RESULTS).exists():
        return out / RESUMED
    (out / RESUMED).unlink(missing_ok=True)
    return out / SUITE


def as_drawn(out: Path) -> None:
    """Lay out a finished evaluation's trajectories like those of an unfinished one with all rollouts
    generated.

    If this is killed, the folder still holds a finished evaluation.
    """
    folder = out / "trajectories"
    shutil.rmtree(folder, ignore_errors=True)  # may be left by an evaluation killed during its cleanup
    forget_all(out)
    folder.mkdir()
    write_trajectories(part(folder, 0), read_trajectories(out / TRAJECTORIES), run=out)


@contextmanager
def replacing(out: Path) -> Iterator[dict[str, Path]]:
    """Where to write each of `NEW`; once all are written, they are moved into place.

    A failure before that leaves the earlier results unchanged.
    """
    # In the same folder, as rows refer to shared pictures by relative paths.
    beside = {name: out / f"{name}.new" for name in NEW}
    try:
        yield beside
        for name, file in beside.items():
            file.replace(out / name)
    finally:
        for file in beside.values():
            file.unlink(missing_ok=True)


def withdraw(out: Path) -> None:
    """Remove the earlier results and the audit based on them, as their files are about to change.

    Called last within `replacing`: if the process is killed then, `--resume` continues from `trajectories`.
    """
    if not (out / RESULTS).exists():
        return
    (out / RESULTS).unlink()
    if (out / RESUMED).exists():
        (out / RESUMED).replace(out / SUITE)
    if forget_audit(out):
        say(f"what `vtune faithfulness` has kept in {out} was about the scores before, and is removed")

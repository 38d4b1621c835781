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
"""In the folder of an evaluation: what was asked."""
RESUMED = "suite.resumed.yaml"
"""Beside it, while earlier results exist: how the evaluation is resumed, perhaps by another grader."""
NEW = (ITEMS, TRAJECTORIES, RESULTS)
"""What takes the place of results of before, in this order: with the results the evaluation is finished."""


def suite_file(out: Path) -> Path:
    """The suite with which `--resume` continues if the command names none."""
    return out / RESUMED if (out / RESUMED).is_file() else out / SUITE


def written_suite(out: Path) -> Path:
    """Where the suite is written that goes on: results of before keep theirs."""
    if (out / RESULTS).exists():
        return out / RESUMED
    (out / RESUMED).unlink(missing_ok=True)
    return out / SUITE


def as_drawn(out: Path) -> None:
    """Lay out the trajectories of a finished evaluation as one that is all drawn has them.

    Whatever kills this leaves a folder that is finished.
    """
    folder = out / "trajectories"
    shutil.rmtree(folder, ignore_errors=True)  # an evaluation that was killed while it tidied up has left it
    forget_all(out)
    folder.mkdir()
    write_trajectories(part(folder, 0), read_trajectories(out / TRAJECTORIES), run=out)


@contextmanager
def replacing(out: Path) -> Iterator[dict[str, Path]]:
    """Where to write each of `NEW`; once all are written, they take their places.

    What fails before that leaves the results of before as they were.
    """
    # In the same folder: rows name the pictures that they share by paths from there.
    beside = {name: out / f"{name}.new" for name in NEW}
    try:
        yield beside
        _withdraw(out)
        for name, file in beside.items():
            file.replace(out / name)
    finally:
        for file in beside.values():
            file.unlink(missing_ok=True)


def _withdraw(out: Path) -> None:
    """Remove the results of before, and what speaks of them: the files that they are about change now."""
    if not (out / RESULTS).exists():
        return
    (out / RESULTS).unlink()
    if (out / RESUMED).exists():
        (out / RESUMED).replace(out / SUITE)
    if forget_audit(out):
        say(f"what `vtune faithfulness` has kept in {out} was about the scores before, and is removed")

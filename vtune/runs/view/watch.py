"""`vtune watch`: how far a run is, read from its folder while another process works in it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vtune.errors import DataError
from vtune.metrics.replies import last_replies
from vtune.report.training import state_of
from vtune.runs.report.document import run_begun, run_report
from vtune.runs.start import is_running
from vtune.view.place import check_run_folder, runs_below

EVERY = 2.0
"""Seconds between looks at the folder (ours)."""
GIVE = "give a folder that `vtune sft` or `rl` writes; `vtune show` and `view` take the others"


def watched(path: Path) -> dict[str, Any]:
    """How far a run is.

    Args:
        path: Its folder.

    Returns:
        See `vtune.report.training.state_of`; `total` is None where neither recipe nor run names one.

    Raises:
        DataError: If it is not the folder of a run.
    """
    check_run_folder(path, fix=GIVE)
    if not (path / "recipe.yaml").is_file():
        runs = [place.path for place in runs_below(path) if place.kind == "run"] if path.is_dir() else []
        raise DataError(
            f"{path} is not the folder of a run: it has no recipe.yaml",
            fix=f"watch a run in it, such as {runs[-1]}, which began last" if runs else GIVE,
        )
    run = _run(path)
    replies = last_replies(path)
    return state_of(
        path,
        run["sources"],
        total=run["steps"],
        running=is_running(path),
        found=run["changes"],
        reply=replies[-1] if replies else None,
    )


def follow(path: Path) -> Iterator[dict[str, Any]]:
    """What `watched` says now, and again at every new step until no process works in the folder any more."""
    found = watched(path)
    yield found
    while found["running"]:
        time.sleep(EVERY)
        try:
            now = watched(path)
        except DataError:
            if not is_running(path):
                raise
            continue  # its files are being written
        if (now["done"], now["running"]) != (found["done"], found["running"]):
            yield now
        found = now


def _run(path: Path) -> dict[str, Any]:
    """What the run says of itself; one that has not ended its first step has no numbers yet."""
    begun = is_running(path) or (path / "environment.json").is_file()
    if begun and not (path / "metrics.jsonl").is_file():
        return run_begun(path)
    runs: Any = run_report([path])["runs"]
    (run,) = runs
    found: dict[str, Any] = run
    return found

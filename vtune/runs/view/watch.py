"""`vtune watch`: how far a run is, read from its folder while another process works in it."""

import fcntl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from vtune.config import read_values
from vtune.errors import DataError
from vtune.metrics.by_source import ALL, steps_done
from vtune.metrics.changes import TELLING
from vtune.metrics.replies import last_replies
from vtune.runs.report.document import run_report

RECENT = 20
"""Steps whose median time says how long the rest takes (ours)."""
EVERY = 2.0
"""Seconds between looks at the folder (ours)."""
PHASE = "seconds_"


def watched(path: Path) -> dict[str, Any]:
    """How far a run is.

    Args:
        path: Its folder.

    Returns:
        `name`, `path`, `running`, `done` (steps) and `total` (None where the recipe names none),
        `seconds_per_step` and `seconds_left` (None where they are not known); `phases`: name -> seconds of a
        step; `sources`: source -> number -> its values; `changes`; `reply`, one of those that were kept last,
        or None.

    Raises:
        DataError: If it is not the folder of a run.
    """
    if not (path / "recipe.yaml").is_file():
        raise DataError(
            f"{path} is not the folder of a run: it has no recipe.yaml",
            fix="give a folder that `vtune sft` or `rl` writes; `vtune show` and `view` take the others",
        )
    run = _run(path)
    sources = {
        source: {name: curves[name]["values"] for name in TELLING if name in curves}
        for source, curves in run["sources"].items()
    }
    every = run["sources"].get(ALL, {})
    done = steps_done(run["sources"])
    total = run["recipe"].get("steps") if isinstance(run["recipe"], dict) else None
    pace = _recent(every, "seconds")
    phases = {name.removeprefix(PHASE): _recent(every, name) for name in every if name.startswith(PHASE)}
    replies = last_replies(path)
    return {
        "name": run["name"],
        "path": str(path),
        "running": is_running(path),
        "done": done,
        "total": total,
        "seconds_per_step": pace,
        "seconds_left": pace * max(total - done, 0) if pace is not None and total is not None else None,
        "phases": phases,
        "sources": sources,
        "changes": run["changes"],
        "reply": replies[-1] if replies else None,
    }


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


def is_running(folder: Path) -> bool:
    """Whether a process works in the folder of a run (`vtune.runs.folder.locked`)."""
    try:
        with (folder / ".lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # nobody has ever worked there, or nobody may look
    return False


def _run(path: Path) -> dict[str, Any]:
    """What the run says of itself; one that has only just begun has no numbers yet."""
    if is_running(path) and not (path / "metrics.jsonl").is_file():
        recipe = read_values(path / "recipe.yaml", fix="the run wrote it; restore it")
        return {"name": path.resolve().name, "recipe": recipe, "sources": {}, "changes": []}
    runs: Any = run_report([path])["runs"]
    (run,) = runs
    found: dict[str, Any] = run
    return found


def _recent(curves: Mapping[str, Any], name: str) -> float | None:
    """The median of the last steps."""
    return median(curves[name]["values"][-RECENT:]) if name in curves else None

"""`vtune watch`: the progress of a run or an evaluation, read from its folder by another process."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vtune.errors import DataError
from vtune.files.json_text import read_record
from vtune.metrics.replies import last_replies
from vtune.report.training import state_of
from vtune.runs.evaluate.unfinished import Unfinished, unfinished
from vtune.runs.report.document import run_begun, run_report
from vtune.runs.start import is_running
from vtune.view.place import check_run_folder, runs_below

EVERY = 2.0
"""Seconds between checks of the folder (ours)."""
GIVE = "give a folder that `vtune sft`, `rl` or `eval` writes; `vtune show` and `view` take the others"


def watched(path: Path) -> dict[str, Any]:
    """The progress of a run or an evaluation.

    Args:
        path: Its folder.

    Returns:
        For training, see `vtune.report.training.state_of`; `total` is None if neither recipe nor run says it.
        For an evaluation: `name`, `path`, `running`, `counts` (what `done` and `total` count: rollouts),
        `done`, `total` (None if an older version started it), `finished`, `score` (None before that, and if
        it has none), `seconds_left` (None: its pace is known only to `follow`).

    Raises:
        DataError: If it is not a run folder.
    """
    check_run_folder(path, fix=GIVE)
    if not (path / "recipe.yaml").is_file():
        drawing = unfinished(path)
        if drawing is not None or (path / "results.json").is_file():
            return _evaluation(path, drawing)
        kinds = ("run", "evaluation")
        runs = [place.path for place in runs_below(path) if place.kind in kinds] if path.is_dir() else []
        raise DataError(
            f"{path} is not the folder of a run: it has no recipe.yaml",
            fix=f"watch one in it, e.g. {runs[-1]}, the last to start" if runs else GIVE,
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
    """The result of `watched` now, and at every new step until no process works in the folder any more."""
    found = watched(path)
    yield found
    began, first = time.monotonic(), found["done"]
    while found["running"]:
        time.sleep(EVERY)
        try:
            now = watched(path)
            if now["counts"] == "rollouts":
                now["seconds_left"] = _left(now, since=first, seconds=time.monotonic() - began)
        except DataError:
            if not is_running(path):
                raise
            continue  # its files are being written
        if (now["done"], now["running"]) != (found["done"], found["running"]):
            yield now
        found = now


def _evaluation(path: Path, drawing: Unfinished | None) -> dict[str, Any]:
    """The progress of an evaluation; `drawing` is None if it is finished."""
    name = {"name": path.resolve().name, "path": str(path)}
    rest = {"counts": "rollouts", "seconds_left": None}
    if drawing is not None:
        far = {"running": drawing.running, "done": drawing.drawn, "total": drawing.total}
        return name | rest | far | {"finished": False, "score": None}
    result = read_record(path / "results.json", "rollouts", fix="the evaluation wrote it; restore it")
    score = result.get("score")
    far = {"running": is_running(path), "done": result["rollouts"], "total": result["rollouts"]}
    return name | rest | far | {"finished": True, "score": _number(score)}


def _number(score: object) -> float | None:
    """The suite's overall score, if it has one."""
    found = score.get("score") if isinstance(score, Mapping) else None
    return found if isinstance(found, int | float) else None


def _left(state: Mapping[str, Any], *, since: int, seconds: float) -> float | None:
    """Seconds that the remaining rollouts of an evaluation take, at the pace of those finished `since`."""
    drawn = state["done"] - since
    if drawn <= 0 or state["total"] is None:
        return None
    return float(seconds / drawn * (state["total"] - state["done"]))


def _run(path: Path) -> dict[str, Any]:
    """What the run itself reports; before the end of its first step there are no numbers."""
    begun = is_running(path) or (path / "environment.json").is_file()
    if begun and not (path / "metrics.jsonl").is_file():
        return run_begun(path)
    runs: Any = run_report([path])["runs"]
    (run,) = runs
    found: dict[str, Any] = run
    return found

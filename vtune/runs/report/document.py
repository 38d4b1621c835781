"""`vtune report`: what run folders report, as one document."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from vtune.config import read_values
from vtune.errors import RESTORE, DataError, VtuneError
from vtune.files.json_text import read_json
from vtune.metrics.by_source import tool_counts
from vtune.metrics.changes import changes, direction, telling
from vtune.metrics.log import MetricsLine, read_metrics
from vtune.metrics.replies import last_replies, stored_replies
from vtune.metrics.tightening import tightenings
from vtune.runs.evaluate.unfinished import check_finished
from vtune.runs.report.results import read_results
from vtune.runs.start import is_running
from vtune.runs.sweep.table import is_sweep, sweep_table
from vtune.schema.audit import read_audit
from vtune.schema.parquet import fingerprint
from vtune.schema.source_names import EVAL
from vtune.uses import USES
from vtune.view.place import GIVE_RUN, RESUME, check_run_folder, is_curation, runs_below, told_apart

REPLIES = 2
"""Replies per source of an evaluation: the worst and the best (ours)."""

SHOWN = ("model", "samples", "limit", "score", "sources", "faithfulness", "unaudited")
"""Keys of an evaluation's results that are shown; newer ones may be missing."""


def run_report(paths: Sequence[Path], *, replies: bool = False) -> dict[str, object]:
    """Read the folders of runs, of evaluations and of sweeps.

    Args:
        paths: Folders with `recipe.yaml` and `metrics.jsonl` (and optionally `environment.json`), with the
            `results.json` of an evaluation, or with the `sweep.yaml` of a sweep; or folders that contain such
            folders, as written by `vtune demo`: then each of these with any results is used.
        replies: Include the replies that were kept last, see `vtune.metrics.replies.last_replies`; for an
            evaluation, `REPLIES` per source.

    Returns:
        `runs`, one entry per folder: `name` (with parent folders if needed to make it unique), `path`,
        `recipe`, `environment` (or None), `steps` (in total; None if unknown), `last_step`, and `sources`:
        source -> number -> `first`, `last`, `best` (None if neither more nor less is better), and the curve
        as `steps` and `values`. A step at which a number could not be measured is missing from its curve.
        `changes`: see `vtune.metrics.changes.telling`. `tightenings`: see `vtune.metrics.tightening`.
        `replies`, if requested. `evaluations`: `name`, `path` and what is in `results.json`. `sweeps`: the
        table of each. `unreadable`: path -> why, for broken folders inside a given one, which do not hide the
        others. `audit` for those that `vtune faithfulness` has audited: see `vtune.schema.audit`.
        `unfinished`: paths of runs and evaluations inside a given folder that have no results yet.

    Raises:
        DataError: If a folder is of another kind, a file is broken in a folder given directly, or nothing
            inside a given folder can be shown, as everything is broken or has no results yet.
    """
    given = paths
    for folder in given:
        check_run_folder(folder)
    spread = [one for path in paths for one in _spread(path)]
    paths = [path for path in spread if path in paths or _has_numbers(path)]
    evaluations = [path for path in paths if _is_evaluation(path)]
    sweeps = [path for path in paths if is_sweep(path)]
    unreadable: dict[str, str] = {}

    def each(some: Iterable[Path], read: Callable[[Path], dict[str, object]]) -> list[dict[str, object]]:
        shown = []
        for path in some:
            try:
                shown.append(read(path))
            except VtuneError as error:
                if path in given:
                    raise
                unreadable[str(path)] = f"{error.what} ({error.where})" if error.where else error.what
        return shown

    runs = (path for path in paths if path not in evaluations and path not in sweeps)
    shown = {
        "runs": _told_apart(each(runs, partial(_run, replies=replies))),
        "evaluations": _told_apart(each(evaluations, partial(_evaluation, replies=replies))),
        "sweeps": each(sweeps, sweep_table),
    }
    unfinished = [str(path) for path in spread if path not in paths]
    if not any(shown.values()):
        raise _nothing(unreadable, unfinished)
    return shown | {"unreadable": unreadable, "unfinished": unfinished}


def _nothing(unreadable: Mapping[str, str], unfinished: Sequence[str]) -> DataError:
    """Why nothing can be shown: first what is broken, which can be repaired, then what is not finished."""
    if not unreadable:
        return DataError(
            "no run has done a step yet, and no evaluation is finished",
            where=", ".join(unfinished),
            fix=f"wait for the process that is working there, or {RESUME}",
        )
    path, why = next(iter(unreadable.items()))
    more = len(unreadable) - 1
    others = f"; so {'is' if more == 1 else 'are'} {more} more" if more else ""
    return DataError(f"{path} is broken: {why}{others}", fix="restore its files, or name another folder")


def _told_apart(shown: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Unique names, with parent folders: sweeps name their runs after seeds, evaluations after suites."""
    paths = [Path(str(one["path"])) for one in shown]
    alike = [[other for other in paths if other.resolve().name == path.resolve().name] for path in paths]
    return [
        one | {"name": told_apart(path, same)} for one, path, same in zip(shown, paths, alike, strict=True)
    ]


def _spread(path: Path) -> list[Path]:
    """The folder itself, or the runs and evaluations in it if it is neither."""
    if (path / "recipe.yaml").is_file() or _is_evaluation(path) or is_sweep(path) or not path.is_dir():
        return [path]
    sweeps = sorted(child for child in path.iterdir() if is_sweep(child))
    runs = [one.path for one in runs_below(path)]
    # A sweep represents its runs.
    return [*sweeps, *(run for run in runs if not any(run.is_relative_to(one) for one in sweeps))] or [path]


def _has_numbers(path: Path) -> bool:
    if is_sweep(path):
        return True
    return (path / ("results.json" if _is_evaluation(path) else "metrics.jsonl")).is_file()


def _is_evaluation(path: Path) -> bool:
    return (path / "suite.yaml").is_file() and not (path / "recipe.yaml").is_file()


def _evaluation(path: Path, *, replies: bool) -> dict[str, object]:
    file = path / "results.json"
    check_finished(path)
    results = read_results(file, *SHOWN, fix=RESTORE)
    own = _uses(results.get("environment"), path)
    shown = {"name": path.resolve().name, "path": str(path), **results, **own, **_audit(path)}
    return shown | ({"replies": _replies(path)} if replies else {})


def _audit(path: Path) -> dict[str, object]:
    found = read_audit(path)
    return {"audit": found} if found else {}


def _replies(path: Path) -> list[dict[str, Any]]:
    """Replies of an evaluation; empty if its trajectories were removed."""
    file = path / "trajectories.parquet"
    return stored_replies(file, each=REPLIES) if file.is_file() else []


def _uses(environment: object, folder: Path) -> dict[str, object]:
    """Under `uses`: name -> `sha256` of each file with custom parts, and whether its copy is `kept`."""
    recorded = environment.get("uses") if isinstance(environment, dict) else None
    if not isinstance(recorded, dict):
        return {}
    copies = {name: folder / USES / str(name) for name in recorded}
    kept = {name: copy.is_file() and fingerprint(copy) == recorded[name] for name, copy in copies.items()}
    return {"uses": {name: {"sha256": recorded[name], "kept": kept[name]} for name in recorded}}


def _run(path: Path, *, replies: bool) -> dict[str, object]:
    if path.is_dir() and any(is_curation(child) for child in path.iterdir()):
        raise DataError(
            f"there is no run and no evaluation in {path}, only curations",
            fix="the report of a curation is the page.html in its folder",
        )
    if not (path / "recipe.yaml").is_file():
        raise DataError(f"{path} is not the folder of a run: it has no recipe.yaml", fix=GIVE_RUN)
    if not (path / "metrics.jsonl").is_file():
        if not is_running(path) and not (path / "environment.json").is_file():  # the recipe is not from a run
            raise DataError(f"{path} is not the folder of a run: it has no metrics.jsonl", fix=GIVE_RUN)
        fix = "wait for its first step" if is_running(path) else RESUME
        raise DataError("no numbers yet: its first step has not ended", where=str(path), fix=fix)
    lines = read_metrics(path / "metrics.jsonl")
    sources: dict[str, list[MetricsLine]] = {}
    for line in lines:
        sources.setdefault(line.source, []).append(line)
    curves: dict[str, Any] = {source: _curves(group) for source, group in sources.items()}
    recipe, environment = _recipe(path / "recipe.yaml"), _environment(path / "environment.json")
    # An evaluation row has the number of steps before it, which is not the number of a training step.
    trained = [line.step for line in lines if not line.source.startswith(EVAL)]
    return {
        "name": path.resolve().name,
        "path": str(path),
        "recipe": recipe,
        "environment": environment,
        **_uses(environment, path),
        "steps": _steps(recipe, environment),
        "last_step": max(trained, default=None),
        "sources": curves,
        "changes": [asdict(one) for one in telling(changes(curves))],
        "tightenings": tightenings(lines),
        **_audit(path),
        **({"replies": last_replies(path)} if replies else {}),
    }


def run_begun(path: Path) -> dict[str, Any]:
    """`steps`, `sources` and `changes`, as in `run_report`, for a run without numbers yet."""
    recipe, environment = _recipe(path / "recipe.yaml"), _environment(path / "environment.json")
    return {"steps": _steps(recipe, environment), "sources": {}, "changes": []}


def _steps(recipe: object, environment: object) -> int | None:
    """Total number of steps of a run, from its recipe or from its count of the data at the start.

    None if neither says, as in older folders of epoch-based recipes without that count.
    """
    named = (one.get("steps") for one in (recipe, environment) if isinstance(one, dict))
    return next((steps for steps in named if isinstance(steps, int)), None)


def _curves(lines: Sequence[MetricsLine]) -> dict[str, dict[str, object]]:
    steps: defaultdict[str, list[int]] = defaultdict(list)
    values: defaultdict[str, list[float]] = defaultdict(list)
    uncalled = dict.fromkeys(tool_counts({name for line in lines for name in line.values}), 0.0)
    for line in lines:
        for name, value in {**uncalled, **line.values}.items():
            steps[name].append(line.step)
            values[name].append(value)
    return {
        name: {
            "first": found[0],
            "last": found[-1],
            "best": _best(name, found),
            "steps": steps[name],
            "values": found,
        }
        for name, found in values.items()
    }


def _best(name: str, values: Sequence[float]) -> float | None:
    wanted = direction(name)
    return None if not wanted else max(values) if wanted > 0 else min(values)


def _recipe(path: Path) -> object:
    return read_values(path, fix=RESTORE)


def _environment(path: Path) -> object:
    return read_json(path, fix=RESTORE) if path.is_file() else None

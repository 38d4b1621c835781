"""`vtune report --credit`: how much credit a run misassigned, and what transfer did about it."""

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Any

from pydantic import ValidationError

from vtune.advantage.credit import Transfer, transfer_credit
from vtune.advantage.misassignment import by_tool, correctable, mean_delta, support_by_similarity
from vtune.advantage.recipe import PAPER, Credit
from vtune.config import read_values
from vtune.errors import RESTORE, DataError
from vtune.metrics.log import read_metrics
from vtune.report.progress import Rows
from vtune.schema.parquet import count_rows, read_trajectories
from vtune.schema.source_names import ALL
from vtune.schema.trajectory import Trajectory
from vtune.view.place import check_run_folder

THETAS = tuple(k / 10 for k in range(1, 11))
"""Thresholds at which shares are reported (the axis of Dong et al., figure 2)."""
BINS = 10
"""Number of similarity bins (figure 2c)."""
GIVE = "give a folder that `vtune rl` wrote, e.g. runs/codev-tiny"

_STEP = re.compile(r"step-(\d+)(?:-rank-\d+)?\.parquet")


@dataclass(frozen=True, slots=True)
class _Step:
    """A step whose trajectories were stored."""

    step: int
    transfer: Transfer
    accuracy: float | None
    seconds: float
    """Time that both phases took in this analysis."""


def run_credit(paths: Sequence[Path]) -> dict[str, Any]:
    """Analyse the stored trajectories of RL runs (Dong et al., figures 2 and 8-10).

    Args:
        paths: Run folders of `vtune rl`. A run without a `credit` section is analysed with the paper's
            constants, showing what transfer would have done.

    Returns:
        `runs`, one entry per folder: `name`, `path`, `credit` (the constants) and `transferred` (whether the
        run used transfer), `steps`, `failing_trajectories`, `failing_calls`; `correctable`, shares by
        `theta`; `support_by_similarity`, by bin; `tools`, over all steps; `training`, one row per step;
        `training_tools`, one per step and tool type; `cost`, or None if the metrics have no steps.

    Raises:
        DataError: If a folder is not a run folder, or holds no trajectories.
    """
    return {"runs": [_run(path) for path in paths]}


def _run(path: Path) -> dict[str, Any]:
    check_run_folder(path, fix=GIVE)
    recipe, transferred = _recipe(path / "recipe.yaml")
    steps = [_analysed(step, found, recipe) for step, found in _stored(path)]
    transfers = [one.transfer for one in steps]
    return {
        "name": path.resolve().name,
        "path": str(path),
        "credit": recipe.model_dump(mode="json"),
        "transferred": transferred,
        "steps": len(steps),
        "failing_trajectories": sum(len(one.failing) for one in transfers),
        "failing_calls": sum(one.failing_calls for one in transfers),
        "correctable": [{"theta": theta, **asdict(correctable(transfers, theta))} for theta in THETAS],
        "support_by_similarity": [asdict(row) for row in support_by_similarity(transfers, BINS)],
        "tools": {name: asdict(tool) for name, tool in by_tool(transfers).items()},
        "training": [_training_row(one, recipe) for one in steps],
        "training_tools": [
            {"step": one.step, "tool": name, **asdict(tool)}
            for one in steps
            for name, tool in by_tool([one.transfer]).items()
        ],
        "cost": _cost(path / "metrics.jsonl", steps),
    }


def _recipe(path: Path) -> tuple[Credit, bool]:
    """The constants, and whether the run itself used them."""
    if not path.is_file():
        raise DataError(
            f"{path.parent} is not the folder of a run: it has no recipe.yaml",
            fix=GIVE,
        )
    try:
        section = (read_values(path, fix=RESTORE) or {}).get("credit")
        return (PAPER, False) if section is None else (Credit.model_validate(section), True)
    except (AttributeError, ValidationError) as error:
        raise DataError(f"its credit section cannot be read: {error}", where=str(path), fix=RESTORE) from None


def _stored(path: Path) -> Iterator[tuple[int, list[Trajectory]]]:
    """The steps whose trajectories were stored, in order, with all processes merged."""
    files: dict[int, list[Path]] = {}
    for file in sorted((path / "trajectories").glob("step-*.parquet")):
        if name := _STEP.fullmatch(file.name):
            files.setdefault(int(name[1]), []).append(file)
    if not files:
        raise DataError(
            "there are no trajectories of training steps",
            where=str(path),
            fix="give a run of `vtune rl`; `trajectories_every` in its recipe says which steps are kept",
        )
    total = sum(map(count_rows, chain.from_iterable(files.values())))
    with Rows(f"credit of {path.name}", total=total, brief=True) as progress:
        for step, parts in sorted(files.items()):
            found = []
            for trajectory in chain.from_iterable(map(read_trajectories, parts)):
                found.append(trajectory)
                progress.advance()
            yield step, found


def _analysed(step: int, found: Sequence[Trajectory], recipe: Credit) -> _Step:
    began = time.perf_counter()
    transfer = transfer_credit(found, recipe)
    seconds = time.perf_counter() - began
    known = [t.reward.accuracy for t in found if t.reward is not None and t.reward.accuracy is not None]
    right = fmean(accuracy >= 1.0 for accuracy in known) if known else None
    return _Step(step, transfer, right, seconds)


def _training_row(one: _Step, recipe: Credit) -> dict[str, Any]:
    """Figures 8 and 9: accuracy, the correctable share at the recipe's thresholds, Δ, and the correction."""
    shares = correctable([one.transfer], recipe)
    delta, delta_gated = mean_delta([one.transfer])
    corrections = [match.correction for match in one.transfer.matches if match.correction != 0]
    return {
        "step": one.step,
        "accuracy": one.accuracy,
        "correctable_trajectories": shares.trajectories,
        "correctable_calls": shares.calls,
        "corrected": len(corrections),
        "gated_calls": sum(match.gated for match in one.transfer.matches),
        "delta": delta,
        "delta_gated": delta_gated,
        "delta_gated_why": _why_no_delta(one.transfer),
        "correction": fmean(corrections) if corrections else None,
        "correction_relative": _relative(one.transfer),
    }


def _why_no_delta(transfer: Transfer) -> str | None:
    """Why there is no Δ as in the figures; None if there is one."""
    if any(match.gated for match in transfer.matches):
        return None
    if not transfer.failing_calls:
        return "no failing trajectory has a call"
    if not transfer.matches:
        return "no success has a call that one could be compared with"
    return "no call passes both gates in a trajectory that was punished"


def _relative(transfer: Transfer) -> float | None:
    """Mean share of the punishment that was reversed, over corrected calls."""
    shares = [match.correction / -match.before for match in transfer.matches if match.correction != 0]
    return fmean(shares) if shares else None


def _cost(path: Path, steps: Sequence[_Step]) -> dict[str, Any] | None:
    """Median seconds of both phases and of a step; as logged, otherwise as measured in this analysis."""
    rows = [line.values for line in read_metrics(path) if line.source == ALL] if path.is_file() else []
    seconds = [row["seconds"] for row in rows if "seconds" in row]
    if not seconds:
        return None
    logged = [row["seconds_credit"] for row in rows if "seconds_credit" in row]
    phases = median(logged or [one.seconds for one in steps])
    return {
        "seconds_credit": phases,
        "seconds": median(seconds),
        "share": phases / median(seconds),
        "measured": "in the run" if logged else "now, on the stored trajectories",
    }

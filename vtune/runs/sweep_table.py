"""What a sweep has found, read from its folder: means over seeds with intervals, and paired differences."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, get_args

from vtune.config import read_values
from vtune.errors import DataError
from vtune.files.json_text import read_record
from vtune.metrics.by_source import ALL
from vtune.metrics.log import MetricsLine, read_metrics
from vtune.metrics.seeds import INTERVAL, over_seeds
from vtune.schema.trajectory import Status

SWEEP = "sweep.yaml"
"""Makes a folder that of a sweep."""
TABLE = "table.json"
DONE = "done.json"
"""In the folder of a run that is finished: what it returned."""
RESULTS = "results.json"

Numbers = dict[str, float]
"""Name -> number; what could not be measured has no key."""

HELD_OUT = "held-out accuracy"
NUMBERS = (HELD_OUT, "accuracy", "entropy", "tool calls", "call errors")


class Run(NamedTuple):
    """One run of a sweep."""

    variant: str
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        """As it is told to people: the path of its folder inside the sweep's."""
        return f"{self.variant}/seed-{self.seed}"

    @property
    def evaluation(self) -> Path:
        """The folder of its evaluation."""
        return self.folder / "eval"


def is_sweep(path: Path) -> bool:
    """Whether a folder is that of a sweep."""
    return (path / SWEEP).is_file()


def sweep_table(path: Path) -> dict[str, Any]:
    """The numbers of a sweep's finished runs.

    - `held-out accuracy`: the score of the evaluation, where the sweep has one;
    - `accuracy`: share of right answers in training, `entropy` of a token in nats, `tool calls` a rollout:
      means over the last steps;
    - `call errors`: share of the calls in these steps that failed by the model's doing.

    Args:
        path: The sweep's folder.

    Returns:
        `name`, `path`, `interval` (the method), `last_steps`; `variants`: name -> `seeds` (finished runs) and
        each number as `value`, `low`, `high` and `n`, the runs that have it (None where none has);
        `differences`: `A - B` -> the same of the differences, seed by seed; `runs`: name -> numbers of each
        run; `unfinished`: runs and evaluations that are missing.

    Raises:
        DataError: If a file in the folder is broken.
    """
    sweep = read_values(path / SWEEP, fix="the sweep wrote it whole; restore it")
    if not isinstance(sweep, dict) or {"variants", "seeds", "last_steps", "held_out"} - set(sweep):
        raise DataError(
            "not the settings of a sweep", where=str(path / SWEEP), fix="the sweep wrote it; restore it"
        )
    found: dict[str, dict[int, Numbers]] = {name: {} for name in sweep["variants"]}
    unfinished = []
    for variant, of_seeds in found.items():
        for seed in sweep["seeds"]:
            run = Run(variant, seed, path / variant / f"seed-{seed}")
            if not (run.folder / DONE).exists():
                unfinished.append(run.name)
                continue
            of_seeds[seed] = _training(run, sweep["last_steps"])
            if sweep["held_out"] is None:
                continue
            if (run.evaluation / RESULTS).exists():
                of_seeds[seed] |= _held_out(run)
            else:
                unfinished.append(f"{run.name}/eval")
    names = [name for name in NUMBERS if name != HELD_OUT or sweep["held_out"] is not None]
    return {
        "name": path.resolve().name,
        "path": str(path),
        "interval": INTERVAL,
        "last_steps": sweep["last_steps"],
        "variants": {variant: _row(list(of_seeds.values()), names) for variant, of_seeds in found.items()},
        "differences": {
            f"{first} - {second}": _row(_differences(found[first], found[second]), names)
            for first, second in sweep["differences"]
        },
        "runs": {
            f"{variant}/seed-{seed}": numbers
            for variant, of_seeds in found.items()
            for seed, numbers in of_seeds.items()
        },
        "unfinished": unfinished,
    }


def _row(runs: Sequence[Numbers], names: Sequence[str]) -> dict[str, Any]:
    """The mean of each number over seeds, and how many runs there are."""
    means = {name: over_seeds([run[name] for run in runs if name in run]) for name in names}
    return {"seeds": len(runs)} | {name: asdict(mean) if mean else None for name, mean in means.items()}


def _differences(first: Mapping[int, Numbers], second: Mapping[int, Numbers]) -> list[Numbers]:
    """Of the seeds that both have."""
    return [
        {name: value - second[seed][name] for name, value in numbers.items() if name in second[seed]}
        for seed, numbers in first.items()
        if seed in second
    ]


def _training(run: Run, last_steps: int) -> Numbers:
    lines = [line for line in read_metrics(run.folder / "metrics.jsonl") if line.source == ALL]
    lines = lines[-last_steps:]
    columns = {"accuracy": "accuracy", "entropy": "entropy", "tool calls": "tool_calls"}
    values = {name: _values(lines, column) for name, column in columns.items()}
    numbers = {name: fmean(there) for name, there in values.items() if there}
    calls = {status: sum(_values(lines, f"calls_{status}")) for status in get_args(Status)}
    if made := sum(calls.values()):
        failed = sum(count for status, count in calls.items() if status not in ("ok", "limit", "infra"))
        numbers["call errors"] = failed / made
    return numbers


def _values(lines: Sequence[MetricsLine], column: str) -> list[float]:
    return [line.values[column] for line in lines if column in line.values]


def _held_out(run: Run) -> Numbers:
    file = run.evaluation / RESULTS
    try:
        score = read_record(file, "score", fix="the evaluation wrote it; restore it")["score"]
    except ValueError as error:
        raise DataError(
            f"not JSON: {error}", where=str(file), fix="the evaluation wrote it whole; restore it"
        ) from None
    return {HELD_OUT: score["score"]} if "score" in score else {}

"""The numbers of one run of a sweep, from its training and its evaluations."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from vtune.errors import DataError
from vtune.files.json_text import read_record
from vtune.metrics.benchmarks import HRBENCH
from vtune.metrics.falls import largest_fall
from vtune.metrics.log import MetricsLine, read_metrics
from vtune.metrics.seeds import SeedMean
from vtune.schema.source_names import ALL
from vtune.schema.trajectory import Status

RESULTS = "results.json"
RESTORE = "restore the file as the evaluation wrote it, or evaluate again"

BOXES = ("iou@50", "iou@75", "iou@95", "iou@99", "ap")
"""Box metrics, independent of the threshold that was rewarded in training."""
GRADIENTS = {
    "gradient norm": "grad_norm",
    **{f"gradient norm, {part}": f"grad_norm_{part}" for part in ("vision", "connector", "language")},
}
REWARD = "reward_"
"""Prefix of the columns of reward parts."""
COLUMNS = {
    "accuracy": "accuracy",
    "accuracy reward": "reward_accuracy",
    "format reward": "reward_format",
    "tool reward": "reward_tool",
    "consistency reward": "reward_consistency",
    "entropy": "entropy",
    "tool calls": "tool_calls",
    "correctable calls": "credit_correctable_calls",
    **{name: name for name in BOXES},
    **GRADIENTS,
}
"""Training number -> its column in `metrics.jsonl`."""
OWN_REWARD = "own reward, "
"""Prefix of custom reward parts; their columns have the prefix `reward_`."""
AREA = "accuracy, all steps"
FALL = "largest fall"
MINUTES = "minutes"
TRAINING = (*COLUMNS, "call errors", AREA, FALL, MINUTES)

FAITHFUL = {"faithful": "faithful_of_all", "faithful of right": "faithful_of_correct"}
"""Evaluation number -> its name in `faithfulness`: the shares of Table 5 and of algorithm 1."""
HABITS = {
    "no look": ("none", "share"),
    "whole picture": ("whole", "share"),
    "look beside": ("miss", "share"),
    "by cue": ("everything", "by_cue"),
    "by cue after a look": ("shows", "by_cue"),
}
"""Evaluation number -> its place in `habits`."""
HELD_OUT = ("accuracy", *HRBENCH, *FAITHFUL, "tool calls", *HABITS, *BOXES)

Numbers = dict[str, SeedMean]
"""Name -> number of one run; what could not be measured has no key."""

_ALONE = SeedMean(0.0, None, None, 1)


def of_training(folder: Path, last_steps: int) -> Numbers:
    """Means over a run's last steps; over all steps, mean accuracy, largest fall and minutes."""
    every = [line for line in read_metrics(folder / "metrics.jsonl") if line.source == ALL]
    lines = every[-last_steps:]
    values = {name: _values(lines, column) for name, column in COLUMNS.items()}
    own = dict.fromkeys(name for line in lines for name in line.values if _is_own_reward(name))
    values |= {f"{OWN_REWARD}{name.removeprefix(REWARD)}": _values(lines, name) for name in own}
    numbers = {name: fmean(there) for name, there in values.items() if there}
    calls = {status: sum(_values(lines, f"calls_{status}")) for status in get_args(Status)}
    if made := sum(calls.values()):
        failed = sum(count for status, count in calls.items() if status not in ("ok", "limit", "infra"))
        numbers["call errors"] = failed / made
    if curve := _values(every, "accuracy"):
        numbers[AREA] = fmean(curve)
    if paid := _values(every, "reward_accuracy"):
        numbers[FALL] = largest_fall(paid, last_steps)
    if seconds := _values(every, "seconds"):
        numbers[MINUTES] = sum(seconds) / 60
    return {name: replace(_ALONE, value=value) for name, value in numbers.items()}


def _is_own_reward(column: str) -> bool:
    return column.startswith(REWARD) and column not in COLUMNS.values()


def _values(lines: Sequence[MetricsLine], column: str) -> list[float]:
    return [line.values[column] for line in lines if column in line.values]


def of_evaluation(folder: Path) -> tuple[Numbers, str]:
    """The numbers of an evaluation, and why there are no shares of faithful answers (empty if there are).

    Raises:
        DataError: If its results are broken.
    """
    file = folder / RESULTS
    try:
        results = read_record(file, "score", "faithfulness", fix=RESTORE)
    except ValueError as error:
        raise DataError(f"not JSON: {error}", where=str(file), fix=RESTORE) from None
    try:
        numbers, why = _numbers_of(results)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"not the results of an evaluation: {type(error).__name__}: {error}", where=str(file), fix=RESTORE
        ) from None
    for name, one in numbers.items():
        if not all(map(_is_number, (one.value, *(end for end in (one.low, one.high) if end is not None)))):
            raise DataError(f"`{name}` is not a number", where=str(file), fix=RESTORE)
    return numbers, why


def _is_number(value: Any) -> bool:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and abs(value) <= sys.float_info.max


def _numbers_of(results: Mapping[str, Any]) -> tuple[Numbers, str]:
    score, looks = results["score"], results["faithfulness"]
    names = {"accuracy": "score"} | {name: name for name in HRBENCH}
    numbers = {name: replace(_ALONE, value=score[key]) for name, key in names.items() if key in score}
    for name, key in (FAITHFUL | {"tool calls": "tool_calls"}).items():
        if looks[key] is not None:
            numbers[name] = replace(_ALONE, **looks[key])
    habits = results.get("habits", {})  # older evaluations have no habits
    for name, (part, key) in HABITS.items():
        if habits and habits[part][key] is not None:
            numbers[name] = replace(_ALONE, **habits[part][key])
    boxes = results.get("sources", {}).get(ALL, {})
    numbers |= {name: replace(_ALONE, value=boxes[name]) for name in BOXES if name in boxes}
    if "faithful" in numbers:
        return numbers, "" if "faithful of right" in numbers else "no answer is right"
    nothing = "no answer is scored" if looks["n_unscored"] else "none of its questions needs a look"
    return numbers, looks.get("no_shares") or nothing

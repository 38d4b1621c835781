"""Curves of a sweep: a training metric over the steps, for every variant, over its seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from vtune.metrics.log import MetricsLine, read_metrics
from vtune.report.figure import Curve
from vtune.schema.source_names import ALL

CURVES = {
    "accuracy": "accuracy",
    "IoU@99": "iou@99",
    "a call shows a target": "evidence_rate",
    "tool calls": "tool_calls",
    "correctable calls": "credit_correctable_calls",
    "entropy": "entropy",
}
"""Title of a curve -> its column in `metrics.jsonl`."""
GRADIENTS = {f"gradient norm, {part}": f"grad_norm_{part}" for part in ("vision", "connector", "language")}
"""The same, for variants that train different parts."""


def sweep_curves(path: Path, table: Mapping[str, Any]) -> dict[str, dict[str, Curve]]:
    """The curves of a sweep's finished runs.

    Args:
        path: The sweep's folder.
        table: From `sweep_table`. As in the table, a value is the mean of up to `last_steps` steps ending at
            its step.

    Returns:
        Title -> variant -> its curve. Numbers that are always 0, or were never measured, are missing.
    """
    logs: dict[str, list[list[MetricsLine]]] = {}
    for name in table["runs"]:
        if (file := path / name / "metrics.jsonl").is_file():
            lines = [line for line in read_metrics(file) if line.source == ALL]
            logs.setdefault(name.rpartition("/seed-")[0], []).append(lines)
    found = {title: _over_seeds(logs, column, table["last_steps"]) for title, column in CURVES.items()}
    gradients = {title: _over_seeds(logs, column, table["last_steps"]) for title, column in GRADIENTS.items()}
    if any(0 < len(of) < len(logs) for of in gradients.values()):
        found |= gradients
    return {title: of for title, of in found.items() if any(any(curve.high) for curve in of.values())}


def _over_seeds(
    logs: Mapping[str, Sequence[Sequence[MetricsLine]]], column: str, width: int
) -> dict[str, Curve]:
    """Variant -> the curve of a column, for variants that have it."""
    found = {}
    for variant, runs in logs.items():
        smooth = [one for lines in runs if (one := _smooth(lines, column, width))]
        if smooth and (curve := _curve(smooth)).steps:
            found[variant] = curve
    return found


def _smooth(lines: Sequence[MetricsLine], column: str, width: int) -> dict[int, float]:
    """The mean over up to `width` steps ending at each step, of the steps that have the value."""
    found = {}
    for at, line in enumerate(lines):
        part = [one.values[column] for one in lines[max(0, at - width + 1) : at + 1] if column in one.values]
        if part:
            found[line.step] = fmean(part)
    return found


def _curve(logged: Sequence[Mapping[int, float]]) -> Curve:
    steps = sorted(set[int].intersection(*(set(one) for one in logged)))
    values = np.array([[one[step] for step in steps] for one in logged])
    return Curve(
        steps=steps,
        mean=values.mean(axis=0).tolist(),
        low=values.min(axis=0).tolist(),
        high=values.max(axis=0).tolist(),
    )

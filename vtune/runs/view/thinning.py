"""Reduces the curves of long runs to few points, for a page: a chart has no more pixels."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

Curves = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]
"""Source -> number -> `steps` and `values`, of equal length."""

POINTS = 1_000
"""Points per curve, at most (ours): more than a chart has pixels, and than most runs have steps."""


def thinned(sources: Curves, most: int) -> dict[str, dict[str, Any]]:
    """The same curves with at most `most` points each.

    In a longer curve, each point is the mean of `width` neighbours (fewer at the end), placed at the last of
    their steps, so the curve ends where the run does. Widths are powers of 2, so that the points of seeds
    with different progress lie at the same steps. Means have six digits.
    """
    return {
        source: {name: _thinned(curve, most) for name, curve in curves.items()}
        for source, curves in sources.items()
    }


def _thinned(curve: Mapping[str, Sequence[float]], most: int) -> dict[str, Any]:
    steps, values = curve["steps"], curve["values"]
    width = 1
    while -(-len(steps) // width) > most:
        width *= 2
    if width == 1:
        return dict(curve)
    starts = range(0, len(steps), width)
    return {
        "steps": [steps[min(start + width, len(steps)) - 1] for start in starts],
        "values": [float(f"{fmean(values[start : start + width]):.6g}") for start in starts],
        "width": width,
    }

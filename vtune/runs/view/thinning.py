"""Reduces the curves of long runs to few points, for a page that holds all of its numbers."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

Curves = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]
"""Source -> number -> `steps` and `values`, of like length."""


def thinned(sources: Curves, most: int) -> dict[str, dict[str, Any]]:
    """The same curves with at most `most` points each.

    Where a curve has more, a point is the mean of neighbours, as many for each point but the last, and lies
    at the last of their steps: so the end of a run is where it was.
    """
    return {
        source: {name: _thinned(curve, most) for name, curve in curves.items()}
        for source, curves in sources.items()
    }


def longest(sources: Curves) -> int:
    """How many points the longest curve has."""
    return max((len(curve["steps"]) for curves in sources.values() for curve in curves.values()), default=0)


def _thinned(curve: Mapping[str, Sequence[float]], most: int) -> dict[str, Any]:
    steps, values = curve["steps"], curve["values"]
    width = -(-len(steps) // most)
    if width <= 1:
        return dict(curve)
    starts = range(0, len(steps), width)
    return {
        "steps": [steps[min(start + width, len(steps)) - 1] for start in starts],
        "values": [fmean(values[start : start + width]) for start in starts],
    }

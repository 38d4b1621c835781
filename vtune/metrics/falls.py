"""How far a curve falls."""

from collections.abc import Sequence
from statistics import fmean


def largest_fall(values: Sequence[float], window: int) -> float:
    """The largest fall of a curve from a mean of `window` neighbours to a later one; 0 if it never falls.

    Args:
        values: One per step, at least one.
        window: Steps per mean; a shorter curve is a single mean.
    """
    means = [fmean(values[start : start + window]) for start in range(max(1, len(values) - window + 1))]
    high, fall = means[0], 0.0
    for mean in means:
        high = max(high, mean)
        fall = max(fall, high - mean)
    return fall

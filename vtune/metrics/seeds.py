"""Means over runs that differ in their seed alone, with Student's t interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan, cos, pi, sin, sqrt
from statistics import fmean, stdev

INTERVAL = "95 % interval of the mean over seeds, by Student's t"
"""The method in words. Resampling three seeds would draw from ten different means: far too narrow."""

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class SeedMean:
    """The mean over seeds, with its 95 % interval: mean ± t s / √n, t of n - 1 degrees of freedom."""

    value: float
    low: float | None
    """None where there is one seed: it says nothing about others."""
    high: float | None
    n: int
    """Seeds."""


def over_seeds(values: Sequence[float]) -> SeedMean | None:
    """The mean of one number over seeds; None where no run has it.

    Seeds are taken as independent draws of normal distribution. The interval keeps to no bounds, so that of a
    share may reach beyond 1.

    Args:
        values: One a seed. For a paired comparison, the differences, seed by seed.
    """
    if not values:
        return None
    mean = fmean(values)
    if len(values) == 1:
        return SeedMean(mean, None, None, 1)
    reach = t_factor(len(values) - 1) * stdev(values) / sqrt(len(values))
    return SeedMean(mean, mean - reach, mean + reach, len(values))


def t_factor(freedom: int) -> float:
    """The t that |T| stays below with probability 0.95, to 1e-9.

    Args:
        freedom: Degrees of freedom, at least 1.
    """
    low, high = 0.0, 100.0
    while high - low > 1e-10:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < LEVEL else (low, middle)
    return (low + high) / 2


def _within(t: float, freedom: int) -> float:
    """P(|T| < t) in closed form. Source: Abramowitz & Stegun, 26.7.3 and 26.7.4."""
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2
    term = cos(angle) if odd else 1.0
    total = 0.0
    for place in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cos(angle) ** 2 * (place - 1) / place
    return 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total

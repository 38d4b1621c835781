"""Means over runs that differ only in their seed, with Student's t interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

INTERVAL = "95 % interval of the mean over seeds, by Student's t"
"""Name of the method. Resampling three seeds gives only ten different means: far too narrow an interval."""

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class SeedMean:
    """The mean over seeds, with its 95 % interval: mean ± t s / √n, t of n - 1 degrees of freedom."""

    value: float
    low: float | None
    """None if there is only one seed, or all values are equal: neither says anything about other seeds."""
    high: float | None
    n: int
    """Number of seeds."""


def over_seeds(values: Sequence[float]) -> SeedMean | None:
    """The mean of one number over seeds; None if no run has it.

    Seeds are taken as independent draws from a normal distribution. The interval is not bounded, so for a
    share it may exceed 1. If all values are equal there is no interval: shares of few questions often are, by
    chance.

    Args:
        values: One per seed. For a paired comparison, the differences seed by seed.
    """
    if not values:
        return None
    mean = fmean(values)
    if max(values) - min(values) <= _ALIKE:
        return SeedMean(mean, None, None, len(values))
    reach = t_factor(len(values) - 1) * stdev(values) / sqrt(len(values))
    return SeedMean(mean, mean - reach, mean + reach, len(values))


_ALIKE = 1e-9
"""Smaller differences are rounding."""


def t_factor(freedom: int) -> float:
    """The t with P(|T| < t) = 0.95.

    Args:
        freedom: Degrees of freedom, at least 1.
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + LEVEL) / 2))

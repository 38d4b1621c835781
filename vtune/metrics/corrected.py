"""The share that a perfect judge would have found, estimated from a judge with known error rates.

Sensitivity and specificity are estimated from cases whose truth is known, so they are uncertain, too: the
interval accounts for that. Measured on 2,000 simulated judges in `tests/metrics/test_corrected.py`.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vtune.metrics.intervals import Estimate
from vtune.metrics.proportion import Z

LEAST_J = 0.2
"""If Youden's J has its lower end below this, the judge is said to distinguish nothing; ours: the judge's
share is divided by J, so that 1 point of it becomes 5 points of the corrected share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """A judge's verdicts on cases whose truth is known; not integers if cases depend on each other."""

    hits: float
    """Judged yes, truth yes."""
    misses: float
    """Judged no, truth yes."""
    false_alarms: float
    """Judged yes, truth no."""
    rejections: float
    """Judged no, truth no."""

    @property
    def yes(self) -> float:
        """Cases whose truth is yes."""
        return self.hits + self.misses

    @property
    def no(self) -> float:
        """Cases whose truth is no."""
        return self.false_alarms + self.rejections


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """A share as a perfect judge would have found it."""

    apparent: float
    """The judge's share."""
    share: Estimate | None
    """The corrected share; None if it is unknown because the judge may be no better than chance."""
    youden: float
    """Sensitivity + specificity - 1: 1 for a perfect judge, 0 for a random one."""
    youden_low: float
    """The lower end of its 95 % interval."""


def corrected(said: float, of: float, confusion: Confusion) -> Corrected | None:
    """Correct a share for its judge's errors.

    Args:
        said: Number of cases judged yes; not an integer if `of` is not.
        of: Number of cases, or the equivalent number of independent ones.
        confusion: The same judge's verdicts on cases whose truth is known.

    Returns:
        None if there are no cases, or no known cases whose truth is yes, or none whose truth is no.

    Source: Rogan & Gladen 1978 for the value. The interval inverts the score test of Lang & Reiczigel 2014
    (Confidence limits for prevalence of disease adjusted for estimated sensitivity and specificity), with
    their estimates (k + 1) / (n + 2) of all three shares; it holds every share that these do not contradict.
    """
    if of <= 0 or not confusion.yes or not confusion.no:
        return None
    hit, reject = confusion.hits / confusion.yes, confusion.rejections / confusion.no
    youden = hit + reject - 1
    spread = math.hypot(
        *(
            math.sqrt(share * (1 - share) / count)
            for share, count in (
                (_middle(confusion.hits, confusion.yes), confusion.yes + 2),
                (_middle(confusion.rejections, confusion.no), confusion.no + 2),
            )
        )
    )
    low = youden - Z * spread
    found = None
    if youden > 0:
        value = min(1.0, max(0.0, (said / of + reject - 1) / youden))
        least, most = interval(
            *(np.array([float(one)]) for one in (said, of, confusion.hits, confusion.yes)),
            *(np.array([float(one)]) for one in (confusion.rejections, confusion.no)),
        )
        found = Estimate(value, min(float(least[0]), value), max(float(most[0]), value))
    return Corrected(apparent=said / of, share=found, youden=youden, youden_low=low)


Numbers = NDArray[np.float64]


def interval(
    said: Numbers, of: Numbers, hits: Numbers, yes: Numbers, rejections: Numbers, no: Numbers
) -> tuple[Numbers, Numbers]:
    """The ends of the 95 % interval of `corrected`, for many judges at once; each argument of shape (N,)."""
    p, s, c = _middle(said, of), _middle(hits, yes), _middle(rejections, no)
    # |p - q(x)| <= Z sd(x) with q(x) = 1 - c + x J: a x² + b x + e <= 0 in the share x.
    j, gap, z2 = s + c - 1, p - (1 - c), Z * Z
    of_said, of_yes, of_no = 1 / (of + 2), s * (1 - s) / (yes + 2), c * (1 - c) / (no + 2)
    a = j * j - z2 * (of_yes + of_no - j * j * of_said)
    b = -2 * gap * j - z2 * (j * (2 * c - 1) * of_said - 2 * of_no)
    e = gap * gap - z2 * (c * (1 - c) * of_said + of_no)
    return _between(a, b, e)


def _between(a: Numbers, b: Numbers, e: Numbers) -> tuple[Numbers, Numbers]:
    """The ends of the set of x in [0, 1] with a x² + b x + e <= 0; if it is empty, the x nearest to it.

    If the judge distinguishes nothing (a <= 0), the set may have two parts: the range from end to end is
    returned.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(b * b - 4 * a * e, 0))
        first, second = (-b - root) / (2 * a), (-b + root) / (2 * a)
    cuts = np.stack([np.zeros_like(a), np.minimum(first, second), np.maximum(first, second), np.ones_like(a)])
    cuts = np.clip(np.nan_to_num(cuts, nan=0.0, posinf=1.0, neginf=0.0), 0, 1)
    grid = np.sort(cuts, axis=0)
    middles = (grid[1:] + grid[:-1]) / 2
    inside = (a * middles + b) * middles + e <= 0
    low = np.where(inside, grid[:-1], np.inf).min(axis=0)
    high = np.where(inside, grid[1:], -np.inf).max(axis=0)
    points = (a * grid + b) * grid + e
    nearest = np.take_along_axis(grid, points.argmin(axis=0)[None], axis=0)[0]
    empty = ~inside.any(axis=0)
    return np.where(empty, nearest, low), np.where(empty, nearest, high)


def _middle(count: float | Numbers, of: float | Numbers) -> float | Numbers:
    """A share pulled slightly towards the middle, so that none is certain."""
    return (count + 1) / (of + 2)

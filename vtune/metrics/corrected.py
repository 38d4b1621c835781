"""The share that a perfect judge would have found, estimated from a judge with known error rates.

Sensitivity and specificity are known from cases whose truth is known, so they are uncertain, too: the
interval carries that. Measured on 2,000 simulated judges in `tests/metrics/test_corrected.py`.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vtune.metrics.intervals import Estimate
from vtune.metrics.proportion import Z

LEAST_J = 0.2
"""Youden's J below whose lower end a judge is said to tell nothing apart; ours: it divides what it says by J,
so that 1 point of what it says is 5 points of the share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """What a judge has said of cases whose truth is known; not whole where cases depend on each other."""

    hits: float
    """Said yes, and it is so."""
    misses: float
    """Said no, and it is so."""
    false_alarms: float
    """Said yes, and it is not so."""
    rejections: float
    """Said no, and it is not so."""

    @property
    def yes(self) -> float:
        """Cases in which it is so."""
        return self.hits + self.misses

    @property
    def no(self) -> float:
        """Cases in which it is not so."""
        return self.false_alarms + self.rejections


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """A share as a perfect judge would have seen it."""

    apparent: float
    """What the judge says."""
    share: Estimate | None
    """What is so; None where nobody can tell: the judge is not known to be better than chance."""
    youden: float
    """Sensitivity + specificity - 1: 1 for a perfect judge, 0 for one that throws dice."""
    youden_low: float
    """The lower end of its 95 % interval."""


def corrected(said: float, of: float, confusion: Confusion) -> Corrected | None:
    """Correct a share for its judge's errors.

    Args:
        said: Cases of which the judge said yes; not whole where `of` is not.
        of: Cases, or as many independent ones as say as much.
        confusion: Of the same judge, on cases of which the truth is known.

    Returns:
        None where there is no case, or the truth is known of none that is so, or of none that is not.

    Source: Rogan & Gladen 1978 for the value. The interval inverts the score test of Lang & Reiczigel 2014
    (Confidence limits for prevalence of disease adjusted for estimated sensitivity and specificity), with
    their estimates (k + 1) / (n + 2) of all three shares: all shares that the three do not contradict.
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
    """The ends of all x in [0, 1] with a x² + b x + e <= 0; where there is none, the x nearest to it.

    Where the judge tells nothing apart (a <= 0), that may be two parts: all between their ends is given.
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
    """A share, a little towards the middle, so that none is certain."""
    return (count + 1) / (of + 2)

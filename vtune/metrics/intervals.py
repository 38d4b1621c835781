"""Shares and means with their 95 % intervals, for clustered observations.

Rollouts of one question, rotations of its options and questions about one picture carry less information than
the same number of questions about different pictures. So clusters are resampled.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vtune.metrics.proportion import wilson
from vtune.metrics.resampling import RESAMPLES, SEED, Array, resampled, totals
from vtune.metrics.seeds import t_factor

Texts = NDArray[np.str_]

FEW = 5
"""Ours: if fewer clusters than these differ from all wrong, or from all right, resamples consist of a handful
of values, and their spread does not reflect what was not seen: with 92 that are all wrong it is 0. The same
holds if nearly all are half right."""

DIGITS = 6
"""Ours, for comparing shares: scores have seven digits, so that 3/7 - 2/7 is not quite 2/7 - 1/7."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share or a mean, with its 95 % interval."""

    value: float
    low: float | None
    """None if nothing can be said about it: see `mean`."""
    high: float | None


def share(
    clusters: Sequence[str],
    parts: ArrayLike,
    wholes: ArrayLike | None = None,
    *,
    strata: Sequence[str] | None = None,
    seed: int = SEED,
) -> Estimate | None:
    """`parts` as a share of `wholes`; None if there is no whole.

    - If all of each cluster went the same way, and clusters weigh the same, Wilson's interval: each cluster
      is one trial, like a question with one rollout.
    - If all but fewer than `FEW` clusters are at one end, 0 or 1, or if all are equal, Wilson's, as if each
      cluster were one trial: correct if all of a cluster go the same way, too wide if not. So 0 of 92 is not
      taken as certain. Mixed clusters do not go the same way, so if most are mixed, however similar, they are
      resampled.
    - Otherwise the percentiles over resampled clusters (`expanded`); if all but fewer than `FEW` have the
      same share between the ends, at least as wide as `around_commonest`.

    Args:
        clusters: Name of the cluster of each observation, shape (N,).
        parts: From 0 to its whole, for each observation.
        wholes: The weight of each observation; 1 by default.
        strata: Part of the data that each observation comes from, if each part keeps its share of the wholes.
            Parts are resampled separately, except that parts with common clusters are resampled together: the
            same picture in two parts is still one picture.
        seed: Seed of the bootstrap.
    """
    part = np.asarray(parts, dtype=np.float64)
    whole = np.ones_like(part) if wholes is None else np.asarray(wholes, dtype=np.float64)
    counts = whole > 0
    names = np.asarray(clusters, dtype=np.str_)
    groups = np.full(len(part), "") if strata is None else np.asarray(strata, dtype=np.str_)
    if not counts.any():
        return None
    table = totals(names[counts], part[counts], whole[counts])
    value = float(table[:, 0].sum() / table[:, 1].sum())
    trials = np.isin(table[:, 0], (0.0, table[0, 1])).all() and bool((table[:, 1] == table[0, 1]).all())
    if trials or few_differ(table, (0.0, 1.0)):
        count = effective(table)
        low, high = wilson(value * count, count)
    else:
        shares = _resampled_shares(names[counts], groups[counts], part[counts], whole[counts], seed=seed)
        low, high = wider(expanded(shares, len(table)), around_commonest(table, value))
    # Rounding must not move an end past the share itself.
    return Estimate(value, max(0.0, min(low, value)), min(1.0, max(high, value)))


def mean(clusters: Sequence[str], values: ArrayLike, *, seed: int = SEED) -> Estimate | None:
    """The mean of numbers without an upper bound; None if there are none.

    If all clusters are equal there is no interval: nothing bounds an unseen one.

    Args:
        clusters: Name of the cluster of each observation, shape (N,).
        values: Shape (N,).
        seed: Seed of the bootstrap.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if not len(numbers):
        return None
    table = totals(clusters, numbers, np.ones_like(numbers))
    value = float(numbers.mean())
    if alike(table):
        return Estimate(value, None, None)
    sums = resampled(table, seed=seed)
    low, high = expanded(sums[:, 0] / sums[:, 1], len(table))
    return Estimate(value, low, high)


def few_differ(table: Array, ends: Sequence[float]) -> bool:
    """Whether fewer than `FEW` clusters differ from one of the ends, or all clusters are equal.

    Args:
        table: Parts and wholes, shape (clusters, 2); no whole is 0.
        ends: Shares of clusters whose observations all go the same way.
    """
    shares = _shares(table)
    return alike(table) or any(int((shares != end).sum()) < FEW for end in ends)


def alike(table: Array) -> bool:
    """Whether all clusters have the same share.

    Args:
        table: Parts and wholes, shape (clusters, 2); no whole is 0.
    """
    shares = _shares(table)
    return bool((shares == shares[0]).all())


def _shares(table: Array) -> Array:
    return np.round(table[:, 0] / table[:, 1], DIGITS)


def around_commonest(table: Array, value: float) -> tuple[float, float] | None:
    """An interval if fewer than `FEW` clusters differ from the most common share; else None.

    The parts above and below that share get Wilson's intervals, as if each cluster were one trial that may
    move as far as the one that moves most; see `from_gains`.

    Args:
        table: Parts and wholes, shape (clusters, 2); no whole is 0.
        value: The overall share.
    """
    shares = _shares(table)
    kinds, times = np.unique(shares, return_counts=True)
    apart = len(shares) - int(times.max())
    if not 0 < apart < min(FEW, len(shares) / 2):
        return None
    moves = shares - kinds[times.argmax()]
    most = float(np.abs(moves).max())
    low, high = from_gains(np.stack([moves / most * table[:, 1], table[:, 1]], axis=1))
    return value + most * low, value + most * high


def from_gains(table: Array) -> tuple[float, float]:
    """How far an interval reaches below and above a mean of gains and losses.

    Gains and losses are shares with Wilson's intervals, as if a cluster were one trial; the two intervals are
    combined as if independent.

    Args:
        table: Gains minus losses of each cluster, and its whole, which neither exceeds; shape (clusters, 2).

    Source: Zou & Donner 2008, Construction of confidence limits about effect measures, eq. 1.
    """
    count = effective(table)
    gains, losses = (
        float(np.clip(side * table[:, 0], 0, None).sum() / table[:, 1].sum()) for side in (1, -1)
    )
    (gain_low, gain_high), (loss_low, loss_high) = (wilson(part * count, count) for part in (gains, losses))
    return -math.hypot(gains - gain_low, loss_high - losses), math.hypot(gain_high - gains, losses - loss_low)


def wider(one: tuple[float, float], other: tuple[float, float] | None) -> tuple[float, float]:
    """The smallest interval that contains both."""
    return one if other is None else (min(one[0], other[0]), max(one[1], other[1]))


def effective(table: Array) -> float:
    """The equivalent number of equal-sized clusters, if all of a cluster go the same way.

    Args:
        table: Parts and wholes, shape (clusters, 2).

    Source: Kish, Survey Sampling, 1965, §11.7: the square of the summed weights over the sum of squares.
    """
    wholes = table[:, 1]
    return float(wholes.sum() ** 2 / (wholes**2).sum())


def expanded(values: Array, clusters: int) -> tuple[float, float]:
    """The percentiles that are the ends of a 95 % interval.

    The percentiles at 2.5 % are too narrow for few clusters: by the factor √((n - 1) / n) of a standard
    deviation that divides by n, and by that of the normal to Student's t. So they are taken further out.

    Args:
        values: One per resample.
        clusters: Number of clusters that were resampled, at least two.

    Source: Hesterberg, What teachers should know about the bootstrap, 2015, §5.3 (expanded percentiles).
    """
    reach = math.sqrt(clusters / (clusters - 1)) * t_factor(clusters - 1)
    tail = 50 * math.erfc(reach / math.sqrt(2))
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)


def _resampled_shares(names: Texts, strata: Texts, part: Array, whole: Array, *, seed: int) -> Array:
    """The share in each resample of clusters, shape (resamples,); each stratum keeps its share of the wholes.

    Args:
        names: Cluster of each observation, shape (N,), like the other arguments.
        strata: See `share`.
        part: See `share`.
        whole: See `share`; each above 0.
        seed: Seed of the first group of strata; each further group adds one.
    """
    shares = np.zeros(RESAMPLES)
    for number, linked in enumerate(_linked(names, strata)):
        inside = np.isin(strata, linked)
        columns = [
            np.where(strata[inside] == one, values[inside], 0.0) for one in linked for values in (part, whole)
        ]
        table = totals(names[inside], *columns)
        sums, seen = resampled(table, seed=seed + number), table.sum(axis=0)
        for at in range(0, len(seen), 2):
            # A stratum with few clusters may be absent from a resample; its share then stays unchanged.
            alone = np.full(RESAMPLES, seen[at] / seen[at + 1])
            shares += (
                np.divide(sums[:, at], sums[:, at + 1], out=alone, where=sums[:, at + 1] > 0)
                * seen[at + 1]
                / whole.sum()
            )
    return shares


def _linked(names: Texts, strata: Texts) -> list[list[str]]:
    """Groups of strata that have clusters in common, directly or through others."""
    of: dict[str, set[str]] = {}
    for name, one in set(zip(names.tolist(), strata.tolist(), strict=True)):
        of.setdefault(name, set()).add(one)
    found: list[set[str]] = []
    for together in of.values():
        touched = [one for one in found if one & together]
        found = [one for one in found if not one & together] + [together.union(*touched)]
    return sorted(sorted(one) for one in found)

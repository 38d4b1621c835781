"""Two evaluations on the same questions: the difference, its interval, and a test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vtune.metrics.intervals import Estimate, around_commonest, expanded, few_differ, from_gains, wider
from vtune.metrics.power import FEWEST, detectable
from vtune.metrics.resampling import SEED, Array, resampled, totals

LEVEL = 0.05
"""Two-sided significance level of the test."""
FLIPS = 100_000
"""Ours: a p of 0.05 is then known to ± 0.0014, and none is below 1 / 100,001."""
ALL_FLIPS = 16
"""Up to this many clusters, all sign combinations are tried."""

Test = Literal["exact McNemar", "sign flips of clusters"]


@dataclass(frozen=True, slots=True)
class Pair:
    """One question in two evaluations."""

    cluster: str
    """Questions with the same cluster belong together (`vtune.schema.clusters`)."""
    a: float
    b: float
    """Scores in [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """B compared with A, with equal weight for every question."""

    n: int
    """Number of questions."""
    clusters: int
    """Number of independent clusters."""
    a: float
    b: float
    """Mean scores."""
    difference: Estimate
    """b - a, with its 95 % interval over clusters."""
    better_a: int
    better_b: int
    """Questions with a higher score in A, and in B; on all others they are equal."""
    differing: int
    """Clusters in which A and B differ."""
    test: Test
    p: float
    """Probability of so large a difference, in either direction, if A and B are interchangeable."""
    detectable: float | None
    """The smallest difference that the test detects with a power of 80 %, if the same share of answers
    differs; None if it detects none of any size, see `vtune.metrics.power`."""


def paired(pairs: Sequence[Pair]) -> Paired:
    """Compare two evaluations, question by question.

    If each question is its own cluster and either right or wrong, the test is McNemar's exact one. Otherwise
    the sign of each cluster's difference is flipped as a whole.

    Args:
        pairs: At least one.

    Source: McNemar 1947; Fisher 1935, The Design of Experiments, §21, for the flips.
    """
    first, second = (np.array([getattr(pair, side) for pair in pairs], dtype=np.float64) for side in "ab")
    less = second - first
    table = totals([pair.cluster for pair in pairs], less, np.ones_like(less))
    single = len(table) == len(pairs) and bool(np.isin(table[:, 0], (-1.0, 0.0, 1.0)).all())
    value = float(less.mean())
    return Paired(
        n=len(pairs),
        clusters=len(table),
        a=float(first.mean()),
        b=float(second.mean()),
        difference=_difference(table, value),
        better_a=int((less < -_NOTHING).sum()),
        better_b=int((less > _NOTHING).sum()),
        differing=int((np.abs(table[:, 0]) > _NOTHING).sum()),
        test="exact McNemar" if single else "sign flips of clusters",
        p=mcnemar(table[:, 0]) if single else sign_flips(table[:, 0]),
        detectable=_detectable(table, single=single),
    )


_NOTHING = 1e-6
"""Smaller differences are rounding of scores to seven digits in `items.jsonl`: 3/7 - 2/7 is not 2/7 - 1/7."""


def _detectable(table: Array, *, single: bool) -> float | None:
    """The smallest mean difference that the test detects with a power of 80 %.

    If clusters change by different amounts, sign flips have the spread of fewer clusters that all change by
    the same amount: that number and amount are put into McNemar's test.

    Args:
        table: Summed differences and number of questions, shape (clusters, 2).
        single: Whether a question that differs changes by 1.

    Returns:
        See `detectable`; also None if fewer than `FEWEST` clusters differ and by varying amounts: they do not
        say by how much others would change.
    """
    sizes, clusters = np.abs(table[:, 0]), len(table)
    if not single and 0 < (sizes > _NOTHING).sum() < FEWEST:
        return None
    square, whole = float((sizes**2).sum()), float(sizes.sum())
    if whole <= _NOTHING:
        return detectable(clusters, 0.0)
    step = square / whole * clusters / float(table[:, 1].sum())
    return detectable(clusters, whole**2 / square / clusters, step=step)


def mean_difference(pairs: Sequence[Pair]) -> Estimate:
    """The mean difference b - a, with its 95 % interval over clusters, as in `paired`.

    Args:
        pairs: At least one. The same question in several runs has one cluster.
    """
    less = np.array([pair.b - pair.a for pair in pairs], dtype=np.float64)
    table = totals([pair.cluster for pair in pairs], less, np.ones_like(less))
    return _difference(table, float(less.mean()))


def mcnemar(differences: Array) -> float:
    """McNemar's exact test.

    Args:
        differences: 1 if only B is right, -1 if only A is, else 0.
    """
    from scipy.stats import binomtest

    won, lost = int((differences > 0).sum()), int((differences < 0).sum())
    return float(binomtest(won, won + lost).pvalue) if won + lost else 1.0


def sign_flips(differences: Array) -> float:
    """How often randomly flipped signs give a sum at least as far from 0.

    Args:
        differences: One per cluster. If there are too many to try all flips, `SEED` draws a sample of them.
    """
    sizes = np.abs(differences)[np.abs(differences) > _NOTHING]
    seen = abs(float(differences.sum())) - _NOTHING
    if len(sizes) <= ALL_FLIPS:
        signs = 1 - 2 * (np.arange(2 ** len(sizes))[:, None] >> np.arange(len(sizes)) & 1)
        return float(np.mean(np.abs(signs @ sizes) >= seen))
    kinds, times = np.unique(np.round(sizes, 12), return_counts=True)
    draw = np.random.default_rng(SEED)
    sums = np.zeros(FLIPS)
    for kind, count in zip(kinds, times, strict=True):
        sums += kind * (2.0 * draw.binomial(count, 0.5, size=FLIPS) - count)
    return float((1 + np.sum(np.abs(sums) >= seen)) / (1 + FLIPS))


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """P-values adjusted for several tests, so that together they err in 5 of 100 cases.

    Source: Holm 1979, A simple sequentially rejective multiple test procedure.
    """
    found: dict[str, float] = {}
    worst = 0.0
    for rank, (name, p) in enumerate(sorted(values.items(), key=lambda item: item[1])):
        worst = max(worst, min(1.0, p * (len(values) - rank)))
        found[name] = worst
    return {name: found[name] for name in values}


def _difference(table: Array, value: float) -> Estimate:
    """The mean difference with its interval; for A - B both are the same with opposite signs.

    Args:
        table: Summed differences and number of questions, shape (clusters, 2).
        value: The mean difference.
    """
    if few_differ(table, (-1.0, 0.0, 1.0)):
        low, high = _of_few(table, value)
        return Estimate(value, low, high)
    # Resample the same direction for A - B and B - A, so that their ends differ only in sign.
    turned = table * (-1.0, 1.0) + 0.0
    here, there = (one[np.lexsort(one.T[::-1])].ravel() for one in (table, turned))
    apart = np.flatnonzero(here != there)[:1]
    other = bool((there > here)[apart].any())
    sums = resampled(turned if other else table)
    low, high = expanded(sums[:, 0] / sums[:, 1], len(table))
    if not len(apart):
        low, high = min(low, -high), max(high, -low)
    low, high = wider((-high, -low) if other else (low, high), around_commonest(table, value))
    return Estimate(value, max(-1.0, low), min(1.0, high))


def _of_few(table: Array, value: float) -> tuple[float, float]:
    """The interval if hardly any cluster differs from an end, so that resamples would say too little.

    For example, two evaluations that agree on all of 92 questions may differ on others: 0 ± 4 points.
    """
    low, high = from_gains(table)
    return max(-1.0, value + low), min(1.0, value + high)

"""The smallest difference that a given number of questions or seeds can distinguish from chance.

For a two-sided test at 5 % with a power of 80 %. Questions use the exact test that compares them; seeds, of
which there are few, Student's t.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from statistics import stdev
from typing import Any

import numpy as np

from vtune.metrics.intervals import Estimate
from vtune.metrics.proportion import Z
from vtune.metrics.seeds import t_factor

REACH = Z + 0.8416212335729143
"""In standard errors: the 97.5 % point plus the 80 % point of the standard normal distribution."""

POWER = 0.8
FEWEST = 6
"""Clusters that have to differ, all in one direction, before McNemar's test or sign flips can detect it: 2 /
2^6 is under 0.05, 2 / 2^5 is not."""
QUANTILES = 2000
"""Number of quantiles of the distribution of standard deviations over which probabilities are averaged."""

DISCORDANT = 0.1
"""Ours: the assumed share of questions that two models answer differently, if nothing is known about them."""


def power(clusters: int, score: float, *, answers: int | None = None) -> dict[str, Any]:
    """The smallest detectable differences from another score, in the units of the score.

    `paired`: on the same questions, if a share `discordant` of the answers differ, all of a cluster in the
    same way; `paired_at_best`: if all that differ do so in one direction, one answer per cluster; `unpaired`:
    on the same number of questions of the same kind, again with uniform clusters, by the normal
    approximation. `paired` is None if it would exceed `discordant`, which no difference can, and both paired
    values are None with fewer than `FEWEST` clusters. Clusters are assumed to have equal sizes.

    Args:
        clusters: Number of independent questions, at least one.
        score: The score, in [0, 1].
        answers: Total number of answers: rollouts, and questions about the same pictures; one per cluster by
            default.
    """
    answers = clusters if answers is None else answers
    # Shrunk as in Agresti & Coull 1998, so that a score of 0 has a spread, too.
    middle = (score * clusters + Z * Z / 2) / (clusters + Z * Z)
    paired = detectable(clusters, DISCORDANT)
    return {
        "clusters": clusters,
        "answers": answers,
        "discordant": DISCORDANT,
        "paired": paired if paired is not None and paired <= DISCORDANT else None,
        "paired_at_best": at_best(clusters, step=clusters / answers),
        "unpaired": min(1.0, REACH * math.sqrt(2 * middle * (1 - middle) / clusters)),
    }


def detectable(clusters: int, discordant: float, *, step: float = 1.0) -> float | None:
    """The smallest paired difference that McNemar's exact test detects with a power of 80 %.

    If `discordant` is too small for any, the share that differs is taken to be the minimum needed
    (`at_best`).

    Args:
        clusters: Number of independent questions, at least one.
        discordant: The share of them that differs, in [0, 1].
        step: Change of a question that differs: 1 for right and wrong, less for means of rollouts.

    Returns:
        None with fewer than `FEWEST` clusters, or if it would exceed 1.
    """
    least = at_best(clusters)
    if least is None:
        return None
    if discordant > least:
        low, high = 0.0, discordant
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if found(clusters, discordant, middle) < POWER else (low, middle)
        least = high
    return step * least if step * least <= 1 else None


def at_best(clusters: int, *, step: float = 1.0) -> float | None:
    """The smallest detectable paired difference if all questions that change do so in one direction.

    Then the share that differs equals the difference, and at least `FEWEST` questions must differ, which
    happens with probability 80 %.

    Returns:
        None with fewer than `FEWEST` clusters.
    """
    if clusters < FEWEST:
        return None
    from scipy.special import betaincinv

    # P(at least k of n) is the regularized incomplete beta function I(k, n - k + 1) at the share.
    return step * float(betaincinv(FEWEST, clusters - FEWEST + 1, POWER))


def found(clusters: int, discordant: float, difference: float) -> float:
    """The power of McNemar's exact two-sided test at 5 %.

    Args:
        clusters: Number of independent questions, at least `FEWEST`.
        discordant: The share of them that differs, in (0, 1].
        difference: From 0 to `discordant`.

    Source: Connor 1987, Sample size for testing differences in proportions for the paired-sample design:
    the test's power given the number that differ, averaged over the distribution of that number.
    """
    from scipy.special import bdtr, bdtrc, bdtrik

    middle = clusters * discordant
    reach = 10 * math.sqrt(middle) + 10  # terms farther out are negligible
    counts = np.arange(max(FEWEST, int(middle - reach)), min(clusters, int(middle + reach)) + 1)
    # The largest number of changes in the rarer direction that is still significant.
    most = np.floor(bdtrik(0.025, counts, 0.5))
    up = (discordant + difference) / (2 * discordant)
    either = bdtr(most, counts, up) + bdtrc(counts - most - 1, counts, up)
    likely = bdtr(counts, clusters, discordant) - bdtr(counts - 1, clusters, discordant)
    return float(np.sum(likely * either))


def power_of(spread: Mapping[str, float], seeds: int) -> dict[str, Any]:
    """The smallest difference that a number of seeds can detect, paired seed by seed, by Student's t.

    Args:
        spread: Name of a number -> expected standard deviation over seeds of its difference; in its own
            units.
        seeds: Seeds per variant.

    Returns:
        Name -> `spread`; `reach`, half the width of the 95 % interval of a difference; `shown`, the smallest
        true difference whose interval excludes 0 in 80 of 100 sweeps. The last two are None with one seed.
    """
    return {
        name: {
            "spread": sd,
            "reach": None if seeds < 2 else t_factor(seeds - 1) * sd / math.sqrt(seeds),
            "shown": None if seeds < 2 else shown_by_seeds(seeds) * sd,
        }
        for name, sd in spread.items()
    }


def shown_by(differences: Sequence[float], *, over: Estimate | None = None) -> float | None:
    """The smallest true difference that this many seeds detect in 80 of 100 sweeps, if they vary as these do.

    Args:
        differences: One per seed.
        over: Their mean with its interval over questions; if that implies a larger spread, it is used.

    Returns:
        None with fewer than two, or if nothing varies: a few equal values do not mean that others are equal.
    """
    if len(differences) < 2:
        return None
    spread = stdev(differences)
    if over is not None and over.low is not None and over.high is not None:
        spread = max(spread, (over.high - over.low) / (2 * Z) * math.sqrt(len(differences)))
    return shown_by_seeds(len(differences)) * spread if spread > _NOTHING else None


_NOTHING = 1e-9
"""Smaller differences are rounding."""


@functools.cache
def shown_by_seeds(seeds: int) -> float:
    """The smallest mean of a normal distribution with standard deviation 1 that Student's t detects.

    The test at 5 %, two-sided, finds it in a share `POWER` of the samples.

    Args:
        seeds: Sample size, at least 2.

    Source: P(|T| > t) of the noncentral t distribution, n - 1 degrees of freedom, noncentrality μ √n,
    computed as the mean of normal probabilities over the sample's standard deviation.
    """
    from scipy.special import chdtri, ndtr

    freedom, bound = seeds - 1, t_factor(seeds - 1)
    # scipy's own `nctdtr` is wrong for one degree of freedom.
    deviations = np.sqrt(chdtri(freedom, (np.arange(QUANTILES) + 0.5) / QUANTILES) / freedom)

    def found(noncentrality: float) -> float:
        inside = ndtr(bound * deviations - noncentrality) - ndtr(-bound * deviations - noncentrality)
        return 1.0 - float(np.mean(inside))

    low, high = 0.0, 1.0
    while found(high) < POWER:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if found(middle) < POWER else (low, middle)
    return high / math.sqrt(seeds)

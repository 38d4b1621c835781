"""The smallest difference that a given number of questions or seeds can distinguish from chance.

For a test at 5 %, two-sided, with a power of 80 %. Questions by the exact test that compares them, seeds, of
which there are few, by Student's t.
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
"""Standard errors: the 97.5 % and the 80 % point of the standard normal distribution."""

POWER = 0.8
FEWEST = 6
"""Clusters that have to differ, all in one direction, for McNemar's test, or flips of signs, to find it:
2 / 2^6 is under 0.05, 2 / 2^5 is not."""
QUANTILES = 2000
"""Of a distribution of standard deviations, over which probabilities are averaged."""

DISCORDANT = 0.1
"""Ours: the share of questions that two models answer differently, where nothing is known about them."""


def power(clusters: int, score: float, *, answers: int | None = None) -> dict[str, Any]:
    """The smallest differences from another score that can be shown, in the units of the score.

    `paired` on the same questions, where a share `discordant` of the answers differ, all of a cluster alike;
    `paired_at_best`, where all that differ do so in one direction, one of a cluster each; `unpaired` on as
    many questions of the same kind, again with clusters that are alike within, by the normal approximation.
    `paired` is None where it would be larger than `discordant`, which no difference can be, and both are
    where there are fewer than `FEWEST` clusters. Clusters are taken to be of one size.

    Args:
        clusters: Independent questions, at least one.
        score: In [0, 1].
        answers: To all of them: rollouts, and questions about the same pictures; one a cluster if left out.
    """
    answers = clusters if answers is None else answers
    # Shrunk as Agresti & Coull 1998 do: a score of 0 has a spread, too.
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
    """The smallest paired difference that McNemar's exact test finds with a power of 80 %.

    Where `discordant` is too small for any, the share that differs is taken to be as large as it has to be at
    the least (`at_best`).

    Args:
        clusters: Independent questions, at least one.
        discordant: The share of them that differs, in [0, 1].
        step: By how much a question changes that does: 1 for right and wrong, less for means of rollouts.

    Returns:
        None with fewer than `FEWEST` clusters, and where it would be larger than 1.
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
    """The smallest paired difference that can be shown if all questions that change do so in one direction.

    Then the share that differs is the difference itself, and at least `FEWEST` questions have to differ,
    which they do with a power of 80 %.

    Returns:
        None with fewer than `FEWEST` clusters.
    """
    if clusters < FEWEST:
        return None
    from scipy.special import betaincinv

    # P(at least k of n) is the regularized incomplete beta function I(k, n - k + 1) at the share.
    return step * float(betaincinv(FEWEST, clusters - FEWEST + 1, POWER))


def found(clusters: int, discordant: float, difference: float) -> float:
    """The power of McNemar's exact test at 5 %, two-sided.

    Args:
        clusters: Independent questions, at least `FEWEST`.
        discordant: The share of them that differs, in (0, 1].
        difference: From 0 to `discordant`.

    Source: Connor 1987, Sample size for testing differences in proportions for the paired-sample design:
    the test's power given how many differ, summed over the distribution of that.
    """
    from scipy.special import bdtr, bdtrc, bdtrik

    middle = clusters * discordant
    reach = 10 * math.sqrt(middle) + 10  # nothing farther out counts
    counts = np.arange(max(FEWEST, int(middle - reach)), min(clusters, int(middle + reach)) + 1)
    # The most changes in the rarer direction that are still significant.
    most = np.floor(bdtrik(0.025, counts, 0.5))
    up = (discordant + difference) / (2 * discordant)
    either = bdtr(most, counts, up) + bdtrc(counts - most - 1, counts, up)
    likely = bdtr(counts, clusters, discordant) - bdtr(counts - 1, clusters, discordant)
    return float(np.sum(likely * either))


def power_of(spread: Mapping[str, float], seeds: int) -> dict[str, Any]:
    """How small a difference so many seeds can show, paired seed by seed, by Student's t.

    Args:
        spread: Number -> standard deviation over seeds of its difference, as expected; in its own units.
        seeds: Of each variant.

    Returns:
        Number -> `spread`; `reach`, half the 95 % interval around a difference; `shown`, the smallest true
        difference whose interval leaves out 0 in 80 of 100 sweeps. Both null with one seed.
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
    """The smallest true difference that as many seeds show in 80 of 100 sweeps, if they vary as these do.

    Args:
        differences: One a seed.
        over: The mean of them with its interval over questions. If that says that they vary more, they do.

    Returns:
        None with fewer than two, and where nothing varies: a few that are alike do not say that others are.
    """
    if len(differences) < 2:
        return None
    spread = stdev(differences)
    if over is not None and over.low is not None and over.high is not None:
        spread = max(spread, (over.high - over.low) / (2 * Z) * math.sqrt(len(differences)))
    return shown_by_seeds(len(differences)) * spread if spread > _NOTHING else None


_NOTHING = 1e-9
"""Less is the rounding of differences."""


@functools.cache
def shown_by_seeds(seeds: int, *, power: float = POWER) -> float:
    """The smallest mean of a normal distribution with standard deviation 1 that Student's t tells from 0.

    Args:
        seeds: Draws, at least 2.
        power: Share of the samples in which the test at 5 %, two-sided, is to find it.

    Source: P(|T| > t) of the noncentral t distribution, n - 1 degrees of freedom, noncentrality μ √n, by the
    mean of normal probabilities over the sample's standard deviation.
    """
    from scipy.special import chdtri, ndtr

    freedom, bound = seeds - 1, t_factor(seeds - 1)
    # scipy's own (`nctdtr`) is wrong with one degree of freedom.
    deviations = np.sqrt(chdtri(freedom, (np.arange(QUANTILES) + 0.5) / QUANTILES) / freedom)

    def found(noncentrality: float) -> float:
        inside = ndtr(bound * deviations - noncentrality) - ndtr(-bound * deviations - noncentrality)
        return 1.0 - float(np.mean(inside))

    low, high = 0.0, 1.0
    while found(high) < power:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if found(middle) < power else (low, middle)
    return high / math.sqrt(seeds)

"""How small a difference can be shown: what a number of questions is able to tell from chance.

All by the normal approximation, for a test at 5 %, two-sided, that finds the difference in 80 of 100 cases.
"""

import math
from typing import Any

from vtune.metrics.proportion import Z

REACH = Z + 0.8416212335729143
"""Standard errors: the 97.5 % and the 80 % point of the standard normal distribution."""

DISCORDANT = 0.1
"""Ours: the share of questions that two models answer differently, where nothing is known about them."""


def power(clusters: int, score: float) -> dict[str, Any]:
    """The smallest differences from another score that can be shown, in the units of the score.

    `paired` on the same questions, where a share `discordant` of the answers differ; `paired_at_best`, where
    all that differ do so in one direction; `unpaired` on as many questions of the same kind.

    Args:
        clusters: Independent questions, at least one.
        score: In [0, 1].
    """
    # Shrunk as Agresti & Coull 1998 do: a score of 0 has a spread, too.
    middle = (score * clusters + Z * Z / 2) / (clusters + Z * Z)
    return {
        "clusters": clusters,
        "discordant": DISCORDANT,
        "paired": min(1.0, detectable(clusters, math.sqrt(DISCORDANT / clusters))),
        "paired_at_best": min(1.0, at_best(clusters)),
        "unpaired": min(1.0, REACH * math.sqrt(2 * middle * (1 - middle) / clusters)),
    }


def detectable(clusters: int, error: float, *, step: float = 1.0) -> float:
    """The smallest paired difference that can be shown.

    1 / clusters is added for the test being exact: with it the power is 80 % or a little more
    (tests/metrics/test_power.py).

    Args:
        clusters: Independent questions, at least one.
        error: Standard error of the mean difference; √(discordant / clusters) for right and wrong.
        step: By how much a question changes that does: 1 for right and wrong, less for means of rollouts.

    Source: Connor 1987, Sample size for testing differences in proportions for the paired-sample design,
    without the term of second order.
    """
    return max(REACH * error + step / clusters, at_best(clusters, step=step))


def at_best(clusters: int, *, step: float = 1.0) -> float:
    """The smallest paired difference that can be shown if all questions that change do so in one direction.

    Then the share that differs is the difference itself: d = REACH √(d / clusters) + 1 / clusters.
    """
    return step * ((REACH + math.sqrt(REACH**2 + 4)) / 2) ** 2 / clusters

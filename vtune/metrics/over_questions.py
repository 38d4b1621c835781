"""The interval of a difference over its questions, beside that over seeds.

A few seeds may lie closer together by luck than the draws of their answers allow, and seeds that are all
evaluated on the same questions say nothing about others. This interval knows of both.
"""

from collections.abc import Sequence

import numpy as np

from vtune.metrics.intervals import Estimate
from vtune.metrics.paired import Pair
from vtune.metrics.proportion import Z
from vtune.metrics.resampling import totals


def over_questions(pairs: Sequence[Pair]) -> Estimate:
    """The mean difference b - a, with its 95 % interval over clusters of questions.

    Args:
        pairs: The questions of all seeds, at least one; the same question of several seeds has one cluster.

    Source: the clustered standard error of Miller 2024, Adding Error Bars to Evals, §2.2.
    """
    less = np.array([pair.b - pair.a for pair in pairs], dtype=np.float64)
    value = float(less.mean())
    table = totals([pair.cluster for pair in pairs], less, np.ones_like(less))
    error = float(np.sqrt(((table[:, 0] - value * table[:, 1]) ** 2).sum())) / len(pairs)
    return Estimate(value, value - Z * error, value + Z * error)

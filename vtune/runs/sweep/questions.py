"""Differences of a sweep over the questions of its evaluations, beside those over seeds.

A few seeds may by luck lie closer together than the sampling of their answers warrants. This interval holds
the seeds fixed: it says how certain the difference between these very policies is on other questions.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from vtune.metrics.intervals import Estimate
from vtune.metrics.items import Item
from vtune.metrics.paired import Pair, mean_difference
from vtune.runs.evaluate.items import ITEMS, read_items

Items = Mapping[str, Item]
"""Id -> question of one evaluation."""


def items_of(folder: Path) -> Items:
    """The questions of an evaluation; empty if it is older than their file.

    Raises:
        DataError: If the file is broken.
    """
    return read_items(folder) if (folder / ITEMS).is_file() else {}


def by_questions(seeds: Sequence[tuple[Items, Items]], differences: Sequence[float]) -> Estimate | None:
    """The difference of two variants over all questions of all seeds.

    Args:
        seeds: Results of the first and the second variant on the questions, for each seed.
        differences: First - second in the suite's own score, for each seed.

    Returns:
        None if a score is not the mean over questions, or the questions are unknown.
    """
    found: list[Pair] = []
    for (first, second), difference in zip(seeds, differences, strict=True):
        pairs = _pairs(first, second)
        if not pairs or abs(fmean(pair.b - pair.a for pair in pairs) - difference) > _ALIKE:
            return None
        found += pairs
    return mean_difference(found) if found else None


_ALIKE = 1e-6
"""Smaller differences are rounding."""


def _pairs(first: Items, second: Items) -> list[Pair]:
    """Pairs of the questions that both have; the first variant is compared with the second, so it is `b`."""
    shared = [(second[name], one) for name, one in first.items() if name in second]
    return [
        Pair(one.cluster, one.score, other.score)
        for one, other in shared
        if one.score is not None and other.score is not None
    ]

"""A custom scorer: the mean of the source that does worst."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from vtune.metrics.benchmarks import SCORERS, Mark, Scores, mean


def worst(marks: Sequence[Mark]) -> Scores:
    """The mean over the rollouts of the source that does worst."""
    by_source: dict[str, list[float]] = defaultdict(list)
    for mark in marks:
        if mark.score is not None:
            by_source[mark.source].append(mark.score)
    counts = {name: value for name, value in mean(marks).items() if name not in ("score", "intervals")}
    return counts | ({"score": min(map(fmean, by_source.values()))} if by_source else {})


SCORERS.add("worst", worst)

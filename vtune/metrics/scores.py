"""Intervals for benchmark scores that are means over rollouts."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from vtune.metrics.intervals import share

if TYPE_CHECKING:
    from vtune.metrics.benchmarks import Mark


def interval(marks: Sequence["Mark"], part: "Callable[[Mark], str] | None" = None) -> dict[str, Any]:
    """The mean of the scores with its 95 % interval over clusters, as `value`, `low` and `high`.

    Args:
        marks: At least one must be scored; unscored ones are left out.
        part: A mark's part of the benchmark, if all parts weigh the same: then the result is the mean of
            their means. Parts with common clusters are resampled together, others separately.
    """
    known = [mark for mark in marks if mark.score is not None]
    parts = [part(mark) if part is not None else "" for mark in known]
    sizes = Counter(parts)
    weights = np.array([len(known) / sizes[name] / len(sizes) for name in parts])
    scores = np.array([mark.score for mark in known], dtype=np.float64)
    found = share([cluster(mark) for mark in known], scores * weights, weights, strata=parts)
    assert found is not None, "no mark is scored"
    return asdict(found)


def cluster(mark: "Mark") -> str:
    """The name of a mark's cluster."""
    return mark.cluster or mark.sample_id

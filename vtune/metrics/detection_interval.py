"""Intervals for average precision: pictures resampled, with the matches of pycocotools.

Matching is done once; a resample only counts its pictures anew. So a thousand resamples of COCO val2017 take
seconds, not hours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vtune.metrics.detection_set import MOST, Matches
from vtune.metrics.intervals import FEW, expanded
from vtune.metrics.resampling import SEED

RESAMPLES = 1000
"""Ours: 25 lie beyond each end of the interval."""
VALUES = 1 << 18
"""Values (thresholds x resamples x detections) counted at once: 2 MB per array."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Category:
    """The detections of one category in all pictures, most confident first, and the number of boxes."""

    picture: NDArray[np.intp]
    """Position of its picture, shape (detections,)."""
    right: NDArray[np.bool_]
    """Shape (thresholds, detections)."""
    wrong: NDArray[np.bool_]
    boxes: Array
    """Number of boxes that can be found, by picture, shape (pictures,)."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The data from which an average precision is computed."""

    categories: tuple[_Category, ...]
    recalls: Array
    pictures: tuple[int, ...]
    """Their ids, in order of position."""

    def precision(self, weights: Array) -> Array:
        """AP with each picture counted this many times; nan if there are no boxes.

        With weights of 1 it equals pycocotools' AP.

        Args:
            weights: Shape (resamples, pictures), integers.

        Returns:
            Shape (resamples,).
        """
        total, known = np.zeros(len(weights)), np.zeros(len(weights))
        for one in self.categories:
            boxes = weights @ one.boxes
            at_once = max(1, VALUES // max(1, one.right.size))
            for start in range(0, len(weights), at_once):
                part = slice(start, start + at_once)
                total[part] += self._means(one, weights[part], boxes[part])
            known += boxes > 0
        return np.asarray(np.divide(total, known, out=np.full(len(weights), np.nan), where=known > 0))

    def _means(self, one: _Category, weights: Array, boxes: Array) -> Array:
        """Average precision of one category per resample; 0 if there are no boxes."""
        weight = weights[:, np.newaxis, one.picture]
        right = np.cumsum(one.right * weight, axis=2)
        wrong = np.cumsum(one.wrong * weight, axis=2)
        precision = right / (right + wrong + np.spacing(1))
        best = np.maximum.accumulate(precision[..., ::-1], axis=2)[..., ::-1]
        # Number of recall thresholds reached once this many boxes are found.
        found = np.arange(right.max(initial=0) + 1) / np.maximum(boxes, 1)[:, np.newaxis]
        reached = np.searchsorted(self.recalls, found, side="right")
        resample = np.arange(len(weights))[:, np.newaxis, np.newaxis]
        first = np.diff(reached[resample, right.astype(np.intp)], axis=2, prepend=0)
        means = (best * first).sum(axis=(1, 2)) / (right.shape[1] * len(self.recalls))
        return np.asarray(np.where(boxes > 0, means, 0.0))


def counts(found: Matches) -> Counts:
    """The data for the average precision over things of all sizes."""
    params, places = found.judge.params, range(len(found.places))
    categories = []
    for number in range(len(params.catIds)):
        rows = [(place, row) for place in places if (row := found.of(number, 0, place)) is not None]
        boxes = np.zeros(len(places))
        for place, row in rows:
            boxes[place] = np.count_nonzero(row["gtIgnore"] == 0)
        if boxes.any():
            categories.append(_category(rows, boxes))
    return Counts(tuple(categories), np.asarray(params.recThrs), tuple(found.places))


def _category(rows: Sequence[tuple[int, dict[str, Any]]], boxes: Array) -> _Category:
    scores = np.concatenate([row["dtScores"][:MOST] for _, row in rows])
    # Ties keep their order, as in pycocotools.
    order = np.argsort(-scores, kind="stable")
    matched = np.concatenate([row["dtMatches"][:, :MOST] for _, row in rows], axis=1)[:, order] != 0
    ignored = np.concatenate([row["dtIgnore"][:, :MOST] for _, row in rows], axis=1)[:, order] != 0
    picture = np.concatenate([[place] * len(row["dtScores"][:MOST]) for place, row in rows])
    return _Category(picture[order].astype(np.intp), matched & ~ignored, ~matched & ~ignored, boxes)


def interval(
    value: float, parts: Sequence[Counts], clusters: Sequence[Mapping[int, str]], *, seed: int = SEED
) -> dict[str, Any]:
    """A mean of average precisions with its 95 % interval over clusters of pictures.

    Args:
        value: The mean.
        parts: Equally weighted sets: subsets of a benchmark, or several replies about the same pictures.
        clusters: For each part, picture id -> cluster; a cluster is resampled together in all parts.
        seed: Seed of the bootstrap.

    Returns:
        `value`, `low` and `high`; if nothing can be said, both ends are None and `why` gives the reason.
    """
    names = sorted({name for group in clusters for name in group.values()})
    number = {name: at for at, name in enumerate(names)}
    members = [
        np.array([number[group[one]] for one in part.pictures])
        for part, group in zip(parts, clusters, strict=True)
    ]
    if len(names) < FEW:
        return _unsure(value, f"there are {len(names)} independent pictures, and at least {FEW} are needed")
    draw = np.random.default_rng(seed)
    drawn = draw.multinomial(len(names), np.full(len(names), 1 / len(names)), size=RESAMPLES).astype(float)
    found = np.stack([part.precision(drawn[:, at]) for part, at in zip(parts, members, strict=True)])
    known = ~np.isnan(found)
    some = known.any(axis=0)
    means = np.where(known, found, 0.0).sum(axis=0)[some] / known.sum(axis=0)[some]
    if not means.size or np.ptp(means) < 1e-12:
        return _unsure(value, "all resamples are the same, so they give no interval")
    low, high = expanded(means, len(names))
    return {"value": value, "low": min(low, value), "high": max(high, value)}


def _unsure(value: float, why: str) -> dict[str, Any]:
    return {"value": value, "low": None, "high": None, "why": why}

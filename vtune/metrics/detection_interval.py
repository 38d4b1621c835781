"""How sure an average precision is: resampled over pictures, from the matches of pycocotools.

Matching is done once; a resample only counts its pictures again. So a thousand resamples of COCO val2017 take
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
"""Ours: 25 lie beyond each end."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Category:
    """The detections of one category in all pictures, the surest first, and how many boxes there are."""

    picture: NDArray[np.intp]
    """Place of its picture, shape (detections,)."""
    right: NDArray[np.bool_]
    """Of shape (thresholds, detections)."""
    wrong: NDArray[np.bool_]
    boxes: Array
    """Boxes that can be found, by picture, shape (pictures,)."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What an average precision is counted from."""

    categories: tuple[_Category, ...]
    recalls: Array
    pictures: tuple[int, ...]
    """Their ids, in order of place."""

    def precision(self, weights: Array) -> float | None:
        """AP where each picture counts this many times; None where no box is.

        With weights of 1 it is that of pycocotools.

        Args:
            weights: Of shape (pictures,), whole numbers.
        """
        means = [found for one in self.categories if (found := self._mean(one, weights)) is not None]
        return float(np.mean(means)) if means else None

    def _mean(self, one: _Category, weights: Array) -> float | None:
        boxes = float(one.boxes @ weights)
        if not boxes:
            return None
        weight = weights[one.picture]
        right = np.cumsum(one.right * weight, axis=1)
        wrong = np.cumsum(one.wrong * weight, axis=1)
        precision = right / (right + wrong + np.spacing(1))
        best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        total = 0.0
        for row, recall in zip(best, right / boxes, strict=True):
            at = np.searchsorted(recall, self.recalls, side="left")
            total += float(row[at[at < len(row)]].sum())
        return total / (len(best) * len(self.recalls))


def counts(found: Matches) -> Counts:
    """What the average precision over things of all sizes is counted from."""
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
    # Of equals the first, as in pycocotools.
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
        parts: Sets that weigh the same: subsets of a benchmark, or several replies about the same pictures.
        clusters: Of each part, id of a picture -> what belongs together; it is drawn together in all parts.
        seed: Of the bootstrap.

    Returns:
        `value`, `low` and `high`; where nothing can be said, both are None, and `why` says so.
    """
    names = sorted({name for group in clusters for name in group.values()})
    number = {name: at for at, name in enumerate(names)}
    members = [
        np.array([number[group[one]] for one in part.pictures])
        for part, group in zip(parts, clusters, strict=True)
    ]
    if len(names) < FEW:
        return _unsure(value, f"there are {len(names)} independent pictures, and {FEW} are the fewest")
    draw = np.random.default_rng(seed)
    drawn = draw.multinomial(len(names), np.full(len(names), 1 / len(names)), size=RESAMPLES).astype(float)
    means = []
    for times in drawn:
        found = [part.precision(times[at]) for part, at in zip(parts, members, strict=True)]
        known = [one for one in found if one is not None]
        if known:
            means.append(float(np.mean(known)))
    if not means or max(means) - min(means) < 1e-12:
        return _unsure(value, "all resamples are alike: nothing bounds what was not seen")
    low, high = expanded(np.array(means), len(names))
    return {"value": value, "low": min(low, value), "high": max(high, value)}


def _unsure(value: float, why: str) -> dict[str, Any]:
    return {"value": value, "low": None, "high": None, "why": why}

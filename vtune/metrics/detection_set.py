"""Detection over a set of pictures by COCO's rules: pycocotools matches the boxes and scores them.

Pictures whose replies have no boxes count as misses; crowds, and things of other sizes than a number is
about, are neither found nor missed.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from copy import copy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from vtune.schema.annotated import AnnotatedPicture, Sides

NUMBERS = (
    "ap",
    "ap50",
    "ap75",
    "ap_small",
    "ap_medium",
    "ap_large",
    "ar_1",
    "ar_10",
    "ar_100",
    "ar_small",
    "ar_medium",
    "ar_large",
)
"""The numbers of `COCOeval.summarize`, in its order."""

MOST = 100
"""Maximum number of boxes of one category in a picture that count (maxDets)."""


@dataclass(frozen=True, slots=True)
class Detection:
    """A predicted box."""

    category: int
    sides: Sides
    score: float
    """Confidence; larger is surer."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A picture and the detections of a reply, in the order of the reply."""

    picture: AnnotatedPicture
    detections: tuple[Detection, ...]


@dataclass(frozen=True, slots=True)
class Matches:
    """`COCOeval`'s matches for each picture: enough for the numbers of any part of the set."""

    judge: Any
    """A `COCOeval` that has evaluated all pictures."""
    places: Mapping[int, int]
    """Picture id -> its position in the order of pycocotools."""

    def of(self, category: int, area: int, place: int) -> dict[str, Any] | None:
        """The matches of a category in a picture, by index of category, area range and picture."""
        areas, pictures = len(self.judge.params.areaRng), len(self.places)
        found: dict[str, Any] | None = self.judge.evalImgs[(category * areas + area) * pictures + place]
        return found


def matches(answered: Sequence[Answered], *, sizes: bool = True) -> Matches:
    """Match predictions with annotations, picture by picture.

    Args:
        answered: Each picture once, at least one. Detections of categories without annotations change
            nothing.
        sizes: Whether to count things of each size separately; without, it takes a quarter of the time.
    """
    truth, found = _dataset(answered), COCO()
    found.dataset = {**truth.dataset, "annotations": _results(answered)}
    # pycocotools prints its progress to stdout, which is reserved for results.
    with redirect_stdout(io.StringIO()):
        truth.createIndex()
        found.createIndex()
        judge = COCOeval(truth, found, "bbox")
        if not sizes:
            judge.params.areaRng, judge.params.areaRngLbl = judge.params.areaRng[:1], ["all"]
        judge.evaluate()
    return Matches(judge, MappingProxyType({one: at for at, one in enumerate(judge.params.imgIds)}))


def numbers(found: Matches, pictures: Iterable[int]) -> dict[str, float]:
    """COCO's summary for some of the pictures; numbers without any annotations have no key.

    Args:
        found: Matches with all sizes.
        pictures: Ids of the pictures; the result is as if there were no others.
    """
    places = sorted(found.places[one] for one in set(pictures))
    params = copy(found.judge.params)
    params.imgIds = list(range(len(places)))
    part = COCOeval(iouType="bbox")
    part.params = part._paramsEval = params
    part.evalImgs = [
        found.of(category, area, place)
        for category in range(len(params.catIds))
        for area in range(len(params.areaRng))
        for place in places
    ]
    with redirect_stdout(io.StringIO()):
        part.accumulate()
        part.summarize()
    return {name: float(value) for name, value in zip(NUMBERS, part.stats, strict=True) if value > -1}


def mean_precision(found: Matches) -> float | None:
    """AP over all pictures, things of all sizes; None if there are no annotations except crowds."""
    judge = found.judge
    with redirect_stdout(io.StringIO()):
        judge.accumulate()
    precision: NDArray[np.float64] = judge.eval["precision"][:, :, :, 0, -1]
    known = precision[precision > -1]
    return float(known.mean()) if len(known) else None


def _dataset(answered: Sequence[Answered]) -> Any:
    """The annotations in the form that pycocotools reads. Categories without annotations have no weight.

    They are renumbered: pycocotools ignores an annotation with id 0, with which many files begin.
    """
    truth = COCO()
    annotations = [(each.picture.identity, one) for each in answered for one in each.picture.annotations]
    entries = [
        {
            "id": number,
            "image_id": picture,
            "category_id": one.category,
            "bbox": list(one.sides),
            "area": one.area,
            "iscrowd": int(one.crowd),
        }
        for number, (picture, one) in enumerate(annotations, start=1)
    ]
    kinds = {one.category for each in answered for one in each.picture.annotations}
    truth.dataset = {
        "images": [{"id": each.picture.identity} for each in answered],
        "categories": [{"id": number} for number in sorted(kinds)],
        "annotations": entries,
    }
    return truth


def _results(answered: Sequence[Answered]) -> list[dict[str, Any]]:
    """The predictions, numbered and with areas as `COCO.loadRes` does it."""
    found = [(each.picture.identity, one) for each in answered for one in each.detections]
    return [
        {
            "id": number,
            "image_id": picture,
            "category_id": one.category,
            "bbox": list(one.sides),
            "area": one.sides[2] * one.sides[3],
            "iscrowd": 0,
            "score": one.score,
        }
        for number, (picture, one) in enumerate(found, start=1)
    ]

"""Average precision of one reply's boxes, by COCO's rules (pycocotools, `COCOeval` for boxes, all areas)."""

from bisect import bisect_right
from collections.abc import Sequence
from math import fsum
from statistics import fmean

import numpy as np

from vtune.schema.box import Box, iou
from vtune.verifiers.boxes import LabelledBox

THRESHOLDS: tuple[float, ...] = tuple(np.linspace(0.5, 0.95, 10).tolist())
"""IoU 0.50:0.05:0.95, bit for bit as in pycocotools: boxes in whole pixels often overlap by exactly 0.6."""
RECALLS: tuple[float, ...] = tuple(np.linspace(0.0, 1.0, 101).tolist())
MOST = 100
"""Limit on predictions per label (maxDets)."""


def average_precision(ranked: Sequence[LabelledBox], truth: Sequence[LabelledBox]) -> list[float]:
    """AP at each IoU in `THRESHOLDS`, averaged over the ground truth's labels; the mean over IoUs is mAP.

    Equal to pycocotools for one picture whose predictions have decreasing scores (to 1e-6 in the tests).
    Labels that are not in the ground truth cost nothing, as in COCO.

    Args:
        ranked: Predictions, most confident first.
        truth: At least one box.
    """
    areas: list[list[float]] = []
    for label in sorted({entry.label for entry in truth}):
        boxes = [entry.box for entry in truth if entry.label == label]
        guesses = [entry.box for entry in ranked if entry.label == label][:MOST]
        overlaps = [[iou(guess, box) for box in boxes] for guess in guesses]
        areas.append([_area(_hits(overlaps, threshold), len(boxes)) for threshold in THRESHOLDS])
    return [fmean(column) for column in zip(*areas, strict=True)]


def by_area(boxes: Sequence[LabelledBox]) -> list[LabelledBox]:
    """Largest first: V-Triune's substitute for a confidence, which models do not give (appendix E)."""
    return sorted(boxes, key=lambda entry: (-_size(entry.box), entry))


def _hits(overlaps: Sequence[Sequence[float]], threshold: float) -> list[bool]:
    """For each prediction in order, whether it finds a box that no earlier one has taken."""
    taken: set[int] = set()
    hits = []
    for row in overlaps:
        best, at = min(threshold, 1 - 1e-10), None
        for number, overlap in enumerate(row):
            if number not in taken and overlap >= best:  # the last one of equals, as in COCO
                best, at = overlap, number
        if at is not None:
            taken.add(at)
        hits.append(at is not None)
    return hits


def _area(hits: Sequence[bool], boxes: int) -> float:
    """Mean, over the recall levels, of the best precision at that recall or higher."""
    precisions, recalls, right = [], [], 0
    for number, hit in enumerate(hits, start=1):
        right += hit
        precisions.append(right / number)
        recalls.append(right / boxes)
    for index in range(len(precisions) - 1, 0, -1):
        precisions[index - 1] = max(precisions[index - 1], precisions[index])
    heights: list[float] = []
    for precision, recall in zip(precisions, recalls, strict=True):
        heights += [precision] * (bisect_right(RECALLS, recall) - len(heights))
    return fsum(heights) / len(RECALLS)


def _size(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])

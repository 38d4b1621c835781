"""OVDEval's NMS-AP: a box found under several names counts once, under the most confident one.

Plain AP favours a model that calls one thing by all the names it was given: the wrong names are false alarms
of other categories, and no object belongs to the hard negatives' categories.

Source: Yao et al. 2023 (arXiv 2308.13177), §4, and the rule of the released `eval.py`.
"""

from dataclasses import replace

from vtune.metrics.detection_set import Answered
from vtune.schema.annotated import Sides

OVERLAP = 0.5
"""Boxes that overlap an annotation by more than this compete for it."""


def suppressed(answered: Answered) -> Answered:
    """The picture without the detections that lose to another.

    For each annotation, including crowds, all detections of any category that overlap it by more than
    `OVERLAP` compete; the most confident wins, on a tie the last in the reply. A detection that lost
    somewhere and won nowhere is removed; those that competed for nothing stay.
    """
    detections = answered.detections
    won: set[int] = set()
    lost: set[int] = set()
    for annotation in answered.picture.annotations:
        near = [at for at, one in enumerate(detections) if _overlap(annotation.sides, one.sides) > OVERLAP]
        if near:
            best = max(near, key=lambda at: (detections[at].score, at))
            won.add(best)
            lost.update(at for at in near if at != best)
    kept = tuple(one for at, one in enumerate(detections) if at in won or at not in lost)
    return replace(answered, detections=kept)


def _overlap(a: Sides, b: Sides) -> float:
    """Intersection over union of boxes (x, y, width, height); 0 if both are empty."""
    wide = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    high = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    shared = max(0.0, wide) * max(0.0, high)
    union = a[2] * a[3] + b[2] * b[3] - shared
    return shared / union if union else 0.0

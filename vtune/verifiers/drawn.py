"""Boxes for people to look at: of a ground truth and of a reply, in pixels of the stored picture."""

from collections.abc import Iterable

from vtune.errors import DataError
from vtune.schema.box import Box, proper
from vtune.schema.sample import Sample
from vtune.verifiers import VERIFIERS
from vtune.verifiers.boxes import LabelledBox, answered_boxes, stated_boxes
from vtune.verifiers.point_in_box import NAME as POINTING
from vtune.verifiers.point_in_box import point_in
from vtune.verifiers.spaces import pixels_of, space_of, with_parm, with_shown_size
from vtune.verifiers.verifier import given_answer

Size = tuple[int, int]
"""Width and height, in pixels."""


def asks_for_boxes(sample: Sample) -> bool:
    """Whether a sample's verifier compares places; one that is not known here does not."""
    verifier = VERIFIERS.get(sample.verifier)
    return verifier is not None and verifier.answers_in_boxes


def truth_in_pixels(sample: Sample, size: Size) -> list[LabelledBox]:
    """The boxes of a ground truth; those that cannot be drawn are left out (a check of the data names them).

    Args:
        sample: One of which `asks_for_boxes` holds.
        size: Of its first picture.
    """
    try:
        relative = space_of(sample) == "relative_1000"
    except DataError:
        return []
    x, y = (side / 1000 if relative else 1.0 for side in size)
    return _drawable(
        LabelledBox(one.label, (one.box[0] * x, one.box[1] * y, one.box[2] * x, one.box[3] * y))
        for one in stated_boxes(sample.ground_truth) or ()
    )


def answer_in_pixels(reply: str, sample: Sample, size: Size, seen: Size | None) -> list[LabelledBox]:
    """The boxes that a reply answers with, a point as a box without a side; none where it cannot be read.

    Args:
        reply: What the policy wrote.
        sample: One of which `asks_for_boxes` holds.
        size: Of its first picture.
        seen: The size in which the policy saw it; None: not known.
    """
    sample = with_parm(sample, dict(zip(("width", "height"), size, strict=True)))
    sample = with_shown_size(sample, seen) if seen is not None else sample
    try:
        if sample.verifier == POINTING:
            return _answered_point(reply, sample)
        return _drawable(answered_boxes(reply, sample) or ())
    except DataError:
        return []


def _answered_point(reply: str, sample: Sample) -> list[LabelledBox]:
    given = given_answer(reply, sample)
    point = point_in(given) if given is not None else None
    if point is None:
        return []
    x, y, *_ = pixels_of(sample).to_truth((*point, 0.0, 0.0))
    box: Box = (x, y, x, y)
    return [LabelledBox("", box)]


def _drawable(boxes: Iterable[LabelledBox]) -> list[LabelledBox]:
    return [one for one in boxes if proper(one.box)]

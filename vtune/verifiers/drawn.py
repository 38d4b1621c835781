"""Boxes of a ground truth and of a reply, in pixels of the stored picture, for people to look at."""

from collections.abc import Iterable

from vtune.errors import DataError
from vtune.schema.box import proper
from vtune.schema.sample import Sample
from vtune.verifiers import VERIFIERS
from vtune.verifiers.boxes import LabelledBox, boxes_in, stated_boxes
from vtune.verifiers.point_in_box import NAME as POINTING
from vtune.verifiers.point_in_box import point_in
from vtune.verifiers.spaces import space_of, spaces_of, with_parm, with_shown_size
from vtune.verifiers.verifier import given_answer

Size = tuple[int, int]
"""Width and height, in pixels."""


def asks_for_boxes(sample: Sample) -> bool:
    """Whether a sample's verifier compares places; False for an unknown verifier."""
    verifier = VERIFIERS.get(sample.verifier)
    return verifier is not None and verifier.answers_in_boxes


def truth_in_pixels(sample: Sample, size: Size) -> list[LabelledBox]:
    """The boxes of a ground truth, except any that cannot be drawn (a check of the data reports them).

    Args:
        sample: A sample for which `asks_for_boxes` is true.
        size: Size of its first picture.
    """
    try:
        return [
            one for one in _scaled(stated_boxes(sample.ground_truth) or (), sample, size) if proper(one.box)
        ]
    except DataError:
        return []


def answer_in_pixels(reply: str, sample: Sample, size: Size, seen: Size | None) -> list[LabelledBox]:
    """The boxes that a reply answers with, a point as a box without extent; none if it cannot be read.

    They are placed relative to the ground truth as the verifier sees them, whatever sizes the sample states.

    Args:
        reply: What the policy wrote.
        sample: A sample for which `asks_for_boxes` is true.
        size: Size of its first picture.
        seen: The size at which the policy saw it; None if not known.
    """
    sample = with_parm(sample, dict(zip(("width", "height"), size, strict=True)))
    sample = with_shown_size(sample, seen) if seen is not None else sample
    try:
        given = given_answer(reply, sample)
        found = _named(given, sample) if given is not None else []
        spaces = spaces_of(sample)
        return _scaled((LabelledBox(one.label, spaces.to_truth(one.box)) for one in found), sample, size)
    except DataError:
        return []


def _named(given: str, sample: Sample) -> list[LabelledBox]:
    """The boxes, or the point, of an answer, in the space of replies."""
    if sample.verifier != POINTING:
        return [one for one in boxes_in(given) or () if proper(one.box)]
    point = point_in(given)
    return [] if point is None else [LabelledBox("", (*point, *point))]


def _scaled(boxes: Iterable[LabelledBox], sample: Sample, size: Size) -> list[LabelledBox]:
    """Boxes from the space of the ground truth, converted to pixels of a picture of this size."""
    relative = space_of(sample) == "relative_1000"
    x, y = (side / 1000 if relative else 1.0 for side in size)
    found = []
    for one in boxes:
        x0, y0, x1, y1 = one.box
        found.append(LabelledBox(one.label, (x0 * x, y0 * y, x1 * x, y1 * y)))
    return found

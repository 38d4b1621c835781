"""Grounding: is this where the requested thing is?"""

from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS
from vtune.verifiers.boxes import CUP_AND_PEN, ELSEWHERE, SQUARE, boxes_form, right_unlabelled_boxes
from vtune.verifiers.detection import check_boxes, verify_boxes
from vtune.verifiers.verifier import Case, Verifier

NAME = "grounding"


def verify_grounding(reply: str, sample: Sample) -> Verdict:
    """Score the boxes of the answer as `verify_detection` does, ignoring their labels.

    One referring expression refers to one thing or more; the question has named it, so labels carry no
    information. (V-Triune's server also compares labels in grounding.) A bare `[x0, y0, x1, y1]` can be read
    as well.

    Raises:
        DataError: As for `check_grounding`, or if there is no threshold.
    """
    return verify_boxes(reply, sample, labelled=False)


def check_grounding(sample: Sample) -> None:
    """Check that the ground truth holds boxes that lie in the picture; labels may be empty.

    Raises:
        DataError: If not, or if an option is unknown, of the wrong type or contradicts another.
    """
    check_boxes(sample, labelled=False)


VERIFIERS.add(
    NAME,
    Verifier(
        verify_grounding,
        check_grounding,
        boxes_form,
        Case(gold=CUP_AND_PEN, broken_gold="a cup", wrong=ELSEWHERE, parm=SQUARE),
        right=right_unlabelled_boxes,
        partial_credit=True,
        answers_in_boxes=True,
        self_contained=True,
        in_worker=True,
        reads_iou=True,
    ),
)

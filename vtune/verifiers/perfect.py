"""The reply that says the ground truth: whether a verifier gives it full marks, without a model."""

import json

from vtune.errors import DataError
from vtune.schema.box import Box
from vtune.schema.sample import Sample
from vtune.verifiers import verifier_of
from vtune.verifiers.boxes import truth_boxes
from vtune.verifiers.detection import with_iou
from vtune.verifiers.spaces import Spaces, spaces_of, with_shown_size
from vtune.verifiers.verifier import where

TIGHTEST = 0.99
"""IoU threshold of the proof, the tightest that V-Triune trains with."""
ROUNDING = 1e-6
"""By which a score may miss 1: boxes are converted between spaces."""


def perfect_reply(sample: Sample) -> str:
    """What a policy would write that knows the ground truth, where the sample wants the answer written.

    Raises:
        DataError: If the ground truth cannot be read.
    """
    answer = _answer(sample)
    place = sample.verifier_parm.get("answer_in") or "tag"
    if place == "boxed":
        return answer if "\\boxed" in answer else f"\\boxed{{{answer}}}"
    return answer if place == "reply" else f"<answer>{answer}</answer>"


def check_full_marks(sample: Sample, shown: tuple[int, int] | None) -> None:
    """See that the ground truth, given as the answer, scores 1. Main thread only (`math`).

    Args:
        sample: What is judged; with `judge`, the words of the ground truth need no model.
        shown: (width, height) in pixels of its first picture, for replies in pixels of what is shown.

    Raises:
        DataError: With the score and the verifier's reason; also what `check_ground_truth` raises.
    """
    verifier = verifier_of(sample)
    if shown is not None and sample.verifier_parm.get("reply_space") == "shown_pixels":
        sample = with_shown_size(sample, shown)
    verifier.check_ground_truth(sample)
    judged = with_iou(sample, (TIGHTEST,)) if verifier.reads_iou else sample
    verdict = verifier.verify(perfect_reply(judged), judged)
    if verdict.score < 1.0 - ROUNDING:
        raise DataError(
            f"the ground truth itself earns {verdict.score:.3g}: {verdict.why}",
            where=where(sample),
            fix="no reply could earn more: mend ground truth or verifier_parm, or name another verifier",
        )


def _answer(sample: Sample) -> str:
    if sample.verifier not in ("detection", "grounding", "point_in_box"):
        return sample.ground_truth
    spaces = spaces_of(sample)
    entries = truth_boxes(sample, labelled=sample.verifier == "detection")
    if sample.verifier == "point_in_box":
        x0, y0, x1, y1 = _in_reply(entries[0].box, spaces)
        return f"({(x0 + x1) / 2:f}, {(y0 + y1) / 2:f})"
    return json.dumps(
        [{"label": entry.label, "bbox_2d": list(_in_reply(entry.box, spaces))} for entry in entries]
    )


def _in_reply(box: Box, spaces: Spaces) -> Box:
    x0, y0, x1, y1 = box
    return x0 / spaces.x_factor, y0 / spaces.y_factor, x1 / spaces.x_factor, y1 / spaces.y_factor

"""A reply that gives the ground truth: does its verifier award full marks, without a model?"""

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.verifiers import scored_elsewhere, tags, verdict_on, verifier_of
from vtune.verifiers.detection import with_iou
from vtune.verifiers.gradings import grading_of
from vtune.verifiers.spaces import with_shown_size
from vtune.verifiers.verifier import Undecided, quote, where

TIGHTEST = 0.99
"""IoU threshold of the check, the tightest that V-Triune trains with."""
ROUNDING = 1e-6
"""Tolerance for a score of 1: boxes are converted between spaces."""


def perfect_reply(sample: Sample) -> str:
    """What a policy that knows the ground truth would write, with the answer where the sample wants it.

    Raises:
        DataError: If the ground truth cannot be read.
    """
    return written(verifier_of(sample).right(sample), sample)


def written(answer: str, sample: Sample) -> str:
    """An answer in the place where the sample wants it."""
    place = sample.verifier_parm.get("answer_in") or "tag"
    if place == "boxed":
        return answer if "\\boxed" in answer else f"\\boxed{{{answer}}}"
    return answer if place == "reply" else f"<answer>{answer}</answer>"


def provable(sample: Sample) -> bool:
    """Whether the ground truth can be checked here: without an official scorer or a model."""
    by_model = verifier_of(sample).asks_judge and grading_of(sample).plain is None
    return not (by_model or scored_elsewhere(sample))


def check_full_marks(sample: Sample, shown: tuple[int, int] | None) -> None:
    """Check that the ground truth, given as the answer, scores 1. Main thread only (`math`).

    If the environment judges, there is no answer to give; if an official scorer does, it cannot be asked;
    if a model always does, there is nothing to compare.

    Args:
        sample: The sample to check; with `judge`, a literal copy of the ground truth needs no model.
        shown: (width, height) in pixels of its first picture as shown, for replies in such pixels.

    Raises:
        DataError: With the score and the verifier's reason; also whatever `check_ground_truth` raises.
    """
    verifier = verifier_of(sample)
    if shown is not None and sample.verifier_parm.get("reply_space") == "shown_pixels":
        sample = with_shown_size(sample, shown)
    verifier.check_ground_truth(sample)
    if verifier.reads_outcome or not provable(sample):
        return
    judged = with_iou(sample, (TIGHTEST,)) if verifier.reads_iou else sample
    try:
        verdict = verdict_on(perfect_reply(judged), judged)
    except Undecided:
        return
    if verdict.score < 1.0 - ROUNDING:
        inner = tags.answer(sample.ground_truth)
        if inner is not None and sample.ground_truth.lstrip().startswith("<answer>"):
            raise DataError(
                f"the ground truth {quote(sample.ground_truth)} is in the tags of a reply",
                where=where(sample),
                fix=f"take the tags off: {quote(inner)}",
            )
        raise DataError(
            f"the ground truth itself earns {verdict.score:.3g}: {verdict.why or 'it gives no reason'}",
            where=where(sample),
            fix="no reply could earn more: fix ground truth or verifier_parm, or name another verifier",
        )

"""Judges of answers.

To add one: write a file with its two functions and the form of its answers, add a line to VERIFIERS, add a
case to tests/verifiers/cases.py. What every verifier promises is tested there: the model's mistakes are
scores, ours are exceptions.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.verifiers.boxes import boxes_form
from vtune.verifiers.choice import check_choice, choice_form, verify_choice
from vtune.verifiers.counting import check_counting, counting_form, verify_counting
from vtune.verifiers.detection import check_detection, verify_detection
from vtune.verifiers.exact import check_exact, exact_form, verify_exact
from vtune.verifiers.grounding import check_grounding, verify_grounding
from vtune.verifiers.judge import check_judge, judge_form, verify_judge
from vtune.verifiers.math import check_math, looks_slow, math_form, verify_math
from vtune.verifiers.ocr import check_ocr, ocr_form, verify_ocr
from vtune.verifiers.point_in_box import check_point_in_box, point_form, verify_point_in_box
from vtune.verifiers.verifier import Verifier, where

__all__ = ["VERIFIERS", "Verifier", "check_ground_truth", "verifier_of"]

VERIFIERS: Mapping[str, Verifier] = MappingProxyType(
    {
        "choice": Verifier(verify_choice, check_choice, choice_form),
        "exact": Verifier(verify_exact, check_exact, exact_form),
        "math": Verifier(verify_math, check_math, math_form, in_worker=True, looks_slow=looks_slow),
        "counting": Verifier(
            verify_counting, check_counting, counting_form, in_worker=True, looks_slow=looks_slow
        ),
        "ocr": Verifier(verify_ocr, check_ocr, ocr_form, in_worker=True),
        # Hundreds of boxes take seconds to match.
        "detection": Verifier(
            verify_detection, check_detection, boxes_form, self_contained=True, in_worker=True, reads_iou=True
        ),
        "grounding": Verifier(
            verify_grounding, check_grounding, boxes_form, self_contained=True, in_worker=True, reads_iou=True
        ),
        "point_in_box": Verifier(verify_point_in_box, check_point_in_box, point_form, self_contained=True),
        "judge": Verifier(verify_judge, check_judge, judge_form, asks_judge=True),
    }
)
"""Name in the data -> verifier."""


def verifier_of(sample: Sample) -> Verifier:
    """The verifier that a sample names.

    Raises:
        DataError: If there is none of that name.
    """
    verifier = VERIFIERS.get(sample.verifier)
    if verifier is None:
        near = get_close_matches(sample.verifier, VERIFIERS, n=1)
        fix = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(VERIFIERS)}"
        raise DataError(f"unknown verifier {sample.verifier!r}", where=where(sample), fix=fix)
    return verifier


def check_ground_truth(sample: Sample) -> None:
    """See that the verifier of a sample exists and accepts its ground truth. Main thread only (`math`).

    Raises:
        DataError: With the sample and the remedy.
    """
    verifier_of(sample).check_ground_truth(sample)

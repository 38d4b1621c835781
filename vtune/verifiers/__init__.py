"""Judges of answers.

To add one: write a file, add a line to VERIFIERS, add a case to tests/verifiers/cases.py. What every
verifier promises is tested there: the model's mistakes are scores, ours are exceptions.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.verifiers.choice import check_choice, verify_choice
from vtune.verifiers.exact import check_exact, verify_exact
from vtune.verifiers.math import check_math, verify_math
from vtune.verifiers.verifier import Verifier, where

__all__ = ["VERIFIERS", "Verifier", "check_ground_truth", "verifier_of"]

VERIFIERS: Mapping[str, Verifier] = MappingProxyType(
    {
        "choice": Verifier(verify_choice, check_choice),
        "exact": Verifier(verify_exact, check_exact),
        "math": Verifier(verify_math, check_math, in_worker=True),
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

"""Judges of answers.

To add one: write a file with its two functions, the form of its answers and its case, which adds itself to
`VERIFIERS`; see `vtune.parts`. What every verifier promises is tested by its case: the model's mistakes are
scores, ours are exceptions.
"""

from vtune.errors import DataError, OutOfRange
from vtune.registry import Parts, first_line
from vtune.schema.sample import Sample
from vtune.schema.verdict import SCALE, Verdict
from vtune.uses import broken, given
from vtune.verifiers.verifier import Case, Verifier, where

__all__ = [
    "VERIFIERS",
    "Case",
    "Verifier",
    "check_ground_truth",
    "scored_elsewhere",
    "verdict_on",
    "verifier_of",
]

VERIFIERS: Parts[Verifier] = Parts("verifier", lambda verifier: first_line(verifier.verify), Verifier)
"""Name in the data -> verifier."""


def verifier_of(sample: Sample) -> Verifier:
    """The verifier that a sample names.

    Raises:
        DataError: If there is none of that name.
    """
    verifier = VERIFIERS.get(sample.verifier)
    if verifier is None:
        fix = VERIFIERS.meant(sample.verifier)
        raise DataError(f"unknown verifier {sample.verifier!r}", where=where(sample), fix=fix)
    return verifier


def verdict_on(reply: str, sample: Sample) -> Verdict:
    """What the sample's own verifier says of a reply, in this process.

    Raises:
        DataError: If there is no verifier of that name, or it cannot read the sample.
        BrokenPart: If a user's own gives something else than a verdict, or a score below 0.
    """
    verdict = given(verifier_of(sample).verify(reply, sample), Verdict, VERIFIERS.kind, sample.verifier)
    if verdict.score < 0.0:
        wrong = OutOfRange(f"it scores {verdict.score:.3g}, and a verifier's scores lie in [0, 1]", SCALE)
        raise broken(wrong, (VERIFIERS.kind, sample.verifier)) or wrong
    return verdict


def check_ground_truth(sample: Sample) -> None:
    """Check that the verifier of a sample exists and accepts its ground truth. Main thread only (`math`).

    Raises:
        DataError: With the sample and the remedy.
    """
    verifier_of(sample).check_ground_truth(sample)


def scored_elsewhere(sample: Sample) -> bool:
    """Whether only the official scorer of a benchmark can tell: here replies to it stay unscored.

    Raises:
        DataError: If there is no verifier of that name, or it cannot read the sample.
    """
    elsewhere = verifier_of(sample).elsewhere
    return elsewhere is not None and elsewhere(sample)

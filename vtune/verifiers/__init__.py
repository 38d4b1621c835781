"""Verifiers, which judge answers.

To add one: write a file with its two functions, the form of its answers and its test case, which adds itself
to `VERIFIERS`; see `vtune.parts`. What every verifier promises is tested with its case: the model's mistakes
are scores, ours are exceptions.
"""

from vtune.errors import BrokenPart, DataError, OutOfRange, VtuneError
from vtune.manners import staying
from vtune.registry import Parts, first_line
from vtune.schema.sample import Sample
from vtune.schema.verdict import SCALE, Verdict
from vtune.uses import broken, defined, ill_made
from vtune.verifiers.verifier import Case, Verifier, where

__all__ = [
    "VERDICT_IS",
    "VERIFIERS",
    "Case",
    "Verifier",
    "check_ground_truth",
    "scored_elsewhere",
    "verdict_on",
    "verifier_of",
]

VERIFIERS: Parts[Verifier] = Parts(
    "verifier",
    lambda verifier: first_line(verifier.verify),
    Verifier,
    calls=(
        "verify(reply, sample) -> Verdict",
        "check_ground_truth(sample) -> None",
        "form(sample) -> str",
        "right(sample) -> str",
        "looks_slow(reply, sample) -> bool",
        "elsewhere(sample) -> bool",
    ),
)
"""Name in the data -> verifier."""

VERDICT_IS = "return Verdict(score, why), or `answered(score, why)` of vtune.verifiers.verifier"
"""The remedy if a verifier returns anything else."""

PARTIAL_CREDIT = "say partial_credit=True in its Verifier(…), or give 0 or 1"
"""The remedy if a verifier gives partial credit without declaring it."""

ROUNDING = 1e-3
"""Tolerance for a score that is meant to be 0 or 1; ours."""

LONGEST_REPLY = 4000
"""Limit on the characters of a reply in the log of a broken verifier; ours."""


def verifier_of(sample: Sample) -> Verifier:
    """The verifier that a sample names.

    Raises:
        DataError: If no verifier has that name.
    """
    verifier = VERIFIERS.get(sample.verifier)
    if verifier is None:
        fix = VERIFIERS.meant(sample.verifier)
        raise DataError(f"unknown verifier {sample.verifier!r}", where=where(sample), fix=fix)
    return verifier


def between_0_and_1(score: float) -> bool:
    """Whether a score is partial credit, rather than 0 or 1 up to rounding."""
    return ROUNDING < score < 1.0 - ROUNDING


def verdict_on(reply: str, sample: Sample) -> Verdict:
    """The verdict of the sample's own verifier on a reply, computed in this process.

    Raises:
        DataError: If no verifier has that name, or it cannot read the sample.
        BrokenPart: If a user's own verifier raises, or returns anything but a verdict, a score below 0, or
            one between 0 and 1 without `partial_credit`; names the sample, and its cause contains the reply.
    """
    verifier, part = verifier_of(sample), (VERIFIERS.kind, sample.verifier)
    try:
        with staying():
            verdict: object = verifier.verify(reply, sample)
        if not isinstance(verdict, Verdict):
            raise ill_made(
                part,
                f"it returns {type(verdict).__name__}, not Verdict",
                VERDICT_IS,
                defined(verifier.verify),
            )
        if verdict.score < 0.0:
            raise OutOfRange(f"it scores {verdict.score:.3g}, and a verifier's scores lie in [0, 1]", SCALE)
        if between_0_and_1(verdict.score) and not verifier.partial_credit:
            raise OutOfRange(f"it scores {verdict.score:.3g}, between 0 and 1", PARTIAL_CREDIT)
        return verdict
    except BrokenPart as failed:
        raise _met(failed, reply, sample) from failed.__cause__
    except (VtuneError, MemoryError):
        raise  # an answer that is too large costs a worker
    except (Exception, SystemExit) as error:  # an exit would end the event loop, not the run
        if (wrong := broken(error, part)) is None:
            raise
        raise _met(wrong, reply, sample) from error


def _met(failed: BrokenPart, reply: str, sample: Sample) -> BrokenPart:
    """The error for a broken verifier, naming the sample; the traceback contains the reply as well."""
    failed.what = f"{failed.what} ({where(sample)})"
    if failed.__cause__ is not None:
        truth = f"ground truth {sample.ground_truth!r:.200}"
        said = f"reply of {len(reply)} characters: {reply[:LONGEST_REPLY]!r}"
        failed.__cause__.add_note(f"{where(sample)}, {truth}, {said}")
    return failed


def check_ground_truth(sample: Sample) -> None:
    """Check that the verifier of a sample exists and accepts its ground truth. Main thread only (`math`).

    Raises:
        DataError: Names the sample and the remedy.
    """
    verifier_of(sample).check_ground_truth(sample)


def scored_elsewhere(sample: Sample) -> bool:
    """Whether only a benchmark's official scorer can judge it: here replies to it stay unscored.

    Raises:
        DataError: If no verifier has that name, or it cannot read the sample.
    """
    elsewhere = verifier_of(sample).elsewhere
    return elsewhere is not None and elsewhere(sample)

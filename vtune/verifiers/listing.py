"""Whether verifiers pay for a reply that lists answers instead of giving one."""

from collections.abc import Sequence

from vtune.schema.sample import Sample
from vtune.verifiers import scored_elsewhere, verdict_on, verifier_of
from vtune.verifiers.perfect import ROUNDING, written
from vtune.verifiers.verifier import Undecided

LISTED = 32
"""Questions of a source whose answers are listed at most, ours."""
LEAST = 3
"""Different answers that make a list: two may both be right, as 12 and 12.0 are."""


def pays_for_lists(samples: Sequence[Sample]) -> bool:
    """Whether one reply that lists the answers to all of these questions is right for every one of them.

    Scorers of benchmarks often look for the truth anywhere in the reply, which no model exploits that was not
    trained on them. A policy that is learns to say everything. Main thread only (`math`).

    Args:
        samples: Of one source and one verifier.

    Returns:
        False also where nobody can tell: answers are boxes or too few, or are judged by a model, by the
        environment or by an official scorer.

    Raises:
        DataError: If a ground truth cannot be read.
    """
    first = samples[:LISTED]
    if any(not _tells(sample) for sample in first):
        return False
    answers = dict.fromkeys(verifier_of(sample).right(sample) for sample in first)
    if len(answers) < LEAST:
        return False
    listed = " or ".join(answers)
    try:
        return all(verdict_on(written(listed, one), one).score >= 1.0 - ROUNDING for one in first)
    except Undecided:
        return False


def _tells(sample: Sample) -> bool:
    verifier = verifier_of(sample)
    by_others = verifier.asks_judge or verifier.reads_outcome or scored_elsewhere(sample)
    return not (by_others or verifier.answers_in_boxes)

"""What a verifier is, and what all of them read in the same way."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict

LONGEST_QUOTE = 60
"""Characters, ours."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """A judge of answers: pure functions of the reply and of what the sample says about judging."""

    verify: Callable[[str, Sample], Verdict]
    """(reply, sample) -> a score in [0, 1]. Never raises because of the reply."""
    check_ground_truth: Callable[[Sample], None]
    """Raises DataError where no reply could earn 1: that is our mistake, and no reply pays for it."""
    in_worker: bool = False
    """It may run long or crash, so `Verifying` runs it in a process of its own."""


def where(sample: Sample) -> str:
    """The place that an error about a sample names."""
    return f"sample {sample.id!r}, source {sample.source!r}"


def quote(text: str) -> str:
    """A text as a verdict quotes it: short enough to read in a report."""
    return repr(text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…")


def options(sample: Sample, known: Collection[str]) -> dict[str, Any]:
    """The `verifier_parm` of a sample; a key whose value is null counts as absent (Parquet fills structs).

    Raises:
        DataError: On a key that the verifier does not know.
    """
    given = {key: value for key, value in sample.verifier_parm.items() if value is not None}
    if unknown := sorted(set(given) - set(known)):
        raise DataError(
            f"verifier `{sample.verifier}` has no option {', '.join(f'`{key}`' for key in unknown)}",
            where=where(sample),
            fix=f"known in verifier_parm: {', '.join(sorted(known)) or 'none'}",
        )
    return given

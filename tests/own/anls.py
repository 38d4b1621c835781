"""A custom verifier: ANLS with partial credit, as DocVQA scores transcriptions."""

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS, Case, Verifier
from vtune.verifiers.verifier import answered, given_answer, no_answer, options, where

TOO_FAR = 0.5
"""From this share of the longer text on, a difference earns nothing."""


def verify(reply: str, sample: Sample) -> Verdict:
    """Score 1 minus the edit distance to the ground truth as a share of the longer text; 0 from 0.5 on."""
    check(sample)
    answer = given_answer(reply, sample)
    if answer is None:
        return no_answer(sample)
    said, right = (" ".join(text.lower().split()) for text in (answer, sample.ground_truth))
    share = distance(said, right) / max(len(said), len(right), 1)
    return answered(1.0 - share if share < TOO_FAR else 0.0, f"{share:.2f} of the text differs")


def check(sample: Sample) -> None:
    """Check that there is a text to read."""
    options(sample, {"answer_in"})
    if not sample.ground_truth.strip():
        raise DataError("the ground truth is empty", where=where(sample), fix="write the text of the picture")


def form(sample: Sample) -> str:
    """What an answer looks like."""
    return "the text as it stands in the picture"


def distance(a: str, b: str) -> int:
    """The number of letters to insert, delete or replace."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


VERIFIERS.add(
    "anls",
    Verifier(
        verify,
        check,
        form,
        Case(gold="NO PARKING", broken_gold=" ", wrong="keep out of here"),
        partial_credit=True,
    ),
)

"""Text in pictures: was it read correctly?"""

import unicodedata
from dataclasses import dataclass

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS
from vtune.verifiers.exact import accepted, normalise
from vtune.verifiers.math import compared, parsed
from vtune.verifiers.verifier import (
    Case,
    Verifier,
    given_answer,
    no_answer,
    one_of,
    options,
    quote,
    where,
    wrong_option,
)

NAME = "ocr"

MATCHES = ("math_verify", "text")
CREDITS = ("whole", "partial")
OF_TEXT = frozenset({"case_sensitive", "credit"})
"""Options that are read only with `match` `text`."""
ANLS_FROM = 0.5
"""Similarity below which a reading earns nothing (ANLS of ST-VQA, also in OCRBench v2)."""
LONGEST = 2000
"""Limit on the characters of an answer that is compared by edits; ours: time grows with both lengths."""


@dataclass(frozen=True, slots=True)
class _Judging:
    """How a sample wants its text judged."""

    right: frozenset[str]
    match: str
    cased: bool
    credit: str


def verify_ocr(reply: str, sample: Sample) -> Verdict:
    r"""Score how well the answer transcribes the ground truth, or the best of its `aliases`.

    `verifier_parm` may contain `aliases`, `answer_in` and `match`:

    - `math_verify` (the default): 1 if math-verify finds both equal, ignoring case, else 0, as V-Triune
      scores OCR (eq. 1; its published server also lower-cases both). What it cannot read as an expression
      is compared as text.
    - `text`, ours: compared as text, because math-verify reads words as products of letters: to it
      `on` equals `no`, and `42 apples` equals `42`. A run of whitespace counts as one space. Case
      is ignored unless `case_sensitive` is true. With `credit` `whole` (the default) the score is 1 or 0;
      with `partial` it is the similarity 1 - edits / length of the longer text, and 0 below 0.5 (ANLS, as in
      OCRBench v2).

    The part `similarity` is that similarity before the cut-off, whatever `match` says. Call it in
    the main thread of a process, like `verify_math`.

    Raises:
        DataError: As for `check_ocr`.
    """
    judging = _judging(sample)
    given = given_answer(reply, sample)
    if given is None:
        return Verdict(0.0, no_answer(sample).why, {"unreadable": 1.0, "similarity": 0.0})
    read = _plain(given, judging.cased)
    likeness = max(similarity(read, text) for text in judging.right) if len(read) <= LONGEST else 0.0
    if judging.match == "math_verify":
        truths = {text: parsed(text, words=True) for text in judging.right}
        verdict = compared(read, truths, quote(sample.ground_truth), words=True)
        return Verdict(verdict.score, verdict.why, {**verdict.parts, "similarity": likeness})
    partial = likeness if likeness >= ANLS_FROM else 0.0
    score = partial if judging.credit == "partial" else float(read in judging.right)
    why = f"read {quote(given)}, truth {quote(sample.ground_truth)}"
    return Verdict(score, why, {"unreadable": 0.0, "similarity": likeness})


def check_ocr(sample: Sample) -> None:
    """Check that there is a text to read. Main thread only, like `verify_ocr`.

    Raises:
        DataError: If the ground truth or an alias is empty or does not match itself, or an option is
            unknown, of the wrong type, or without effect.
    """
    judging = _judging(sample)
    if judging.match != "math_verify":
        return
    for text in sorted(judging.right):
        verdict = compared(text, {text: parsed(text, words=True)}, "", words=True)
        if verdict.score < 1.0:
            raise DataError(
                f"math-verify cannot match the text {quote(text)} with itself",
                where=where(sample),
                fix="compare it as a text: write `match: text` into verifier_parm, or drop the row",
            )


def ocr_form(sample: Sample) -> str:
    """What an answer looks like."""
    return "the text alone, as it is written in the image"


def similarity(a: str, b: str) -> float:
    """1 - Levenshtein distance / length of the longer text, in [0, 1]; 1 for two empty texts."""
    longer = max(len(a), len(b))
    return 1.0 - edits(a, b) / longer if longer else 1.0


def edits(a: str, b: str) -> int:
    """Levenshtein distance: insertions, deletions and substitutions from one text to the other."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, start=1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(b, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
    return row[-1]


def _plain(text: str, cased: bool) -> str:
    return unicodedata.normalize("NFC", " ".join(text.split())) if cased else normalise(text)


def _judging(sample: Sample) -> _Judging:
    given = options(sample, {"aliases", "answer_in", "match", *OF_TEXT})
    match = one_of(sample, "match", MATCHES, default=MATCHES[0])
    if match != "text" and (idle := sorted(OF_TEXT & given.keys())):
        raise DataError(
            f"verifier `ocr`: `{idle[0]}` has no effect unless texts are compared as texts",
            where=where(sample),
            fix="write `match: text` into verifier_parm, too",
        )
    cased = given.get("case_sensitive", False)
    if not isinstance(cased, bool):
        raise wrong_option(sample, "case_sensitive", cased, "true or false")
    return _Judging(
        right=accepted(sample, lambda text: _plain(text, cased)),
        match=match,
        cased=cased,
        credit=one_of(sample, "credit", CREDITS, default="whole"),
    )


VERIFIERS.add(
    NAME,
    Verifier(
        verify_ocr,
        check_ocr,
        ocr_form,
        Case(gold="NO PARKING", broken_gold=" ", wrong="KEEP OUT"),
        partial_credit=True,
        in_worker=True,
    ),
)

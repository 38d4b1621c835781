"""Text in pictures: was it read right?"""

from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers.exact import accepted, normalise
from vtune.verifiers.verifier import given_answer, no_answer, one_of, options, quote, wrong_option

CREDITS = ("whole", "partial")
ANLS_FROM = 0.5
"""Similarity below which a reading earns nothing (ANLS of ST-VQA, also in OCRBench v2)."""
LONGEST = 2000
"""Characters of an answer that is still compared by edits, ours: time grows with both lengths."""


def verify_ocr(reply: str, sample: Sample) -> Verdict:
    r"""Score how well the answer transcribes the ground truth, or the best of its aliases.

    White space counts as one space each; case does not count unless `case_sensitive` is true. Other options
    of `verifier_parm`: `aliases`, `answer_in` and `credit`. With `credit` `whole` (the default) the score is
    1 or 0, as V-Triune scores OCR (eq. 1); texts are compared as texts, for math-verify would take `on` and
    `no` for the same product. With `partial` it is the similarity 1 - edits / length of the longer text,
    and 0 below 0.5 (ANLS, as in OCRBench v2).

    `similarity` among the parts is that similarity before it is cut off.

    Raises:
        DataError: As `check_ocr` does.
    """
    right, cased, credit = _judging(sample)
    given = given_answer(reply, sample)
    if given is None:
        return Verdict(0.0, no_answer(sample).why, {"unreadable": 1.0, "similarity": 0.0})
    read = _plain(given, cased)
    likeness = max(similarity(read, text) for text in right) if len(read) <= LONGEST else 0.0
    partial = likeness if likeness >= ANLS_FROM else 0.0
    score = partial if credit == "partial" else float(read in right)
    why = f"read {quote(given)}, truth {quote(sample.ground_truth)}"
    return Verdict(score, why, {"unreadable": 0.0, "similarity": likeness})


def check_ocr(sample: Sample) -> None:
    """See that there is a text to read.

    Raises:
        DataError: If the ground truth or an alias is empty, or an option is unknown or of the wrong kind.
    """
    _judging(sample)


def similarity(a: str, b: str) -> float:
    """1 - Levenshtein distance / length of the longer text, in [0, 1]; 1 for two empty texts."""
    longer = max(len(a), len(b))
    return 1.0 - _edits(a, b) / longer if longer else 1.0


def _edits(a: str, b: str) -> int:
    """Levenshtein distance: insertions, deletions and substitutions from one text to the other."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, start=1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(b, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
    return row[-1]


def _plain(text: str, cased: bool) -> str:
    return " ".join(text.split()) if cased else normalise(text)


def _judging(sample: Sample) -> tuple[frozenset[str], bool, str]:
    """(accepted texts, whether case counts, credit)."""
    given = options(sample, {"aliases", "answer_in", "case_sensitive", "credit"})
    cased = given.get("case_sensitive", False)
    if not isinstance(cased, bool):
        raise wrong_option(sample, "case_sensitive", cased, "true or false")
    texts = accepted(sample, lambda text: _plain(text, cased))
    return texts, cased, one_of(sample, "credit", CREDITS, default="whole")

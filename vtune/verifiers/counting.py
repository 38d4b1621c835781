"""Counts: is it the same whole number?"""

import re

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS
from vtune.verifiers.math import compared, looks_slow, parsed
from vtune.verifiers.verifier import (
    Case,
    Verifier,
    answered,
    given_answer,
    no_answer,
    one_of,
    options,
    quote,
    unreadable,
    where,
)

NAME = "counting"

MATCHES = ("math_verify", "equal", "substring")
LONGEST = 20
"""Limit on the characters of a number; ours: no picture has more to count."""

_ONES = (
    *(
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
    ),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_WORDS = {word: number for number, word in enumerate(_ONES)} | {
    f"{ten}{f'-{_ONES[one]}' if one else ''}": 10 * tens + one
    for tens, ten in enumerate(_TENS, start=2)
    for one in range(10)
}
_DIGITS = re.compile(r"\d{1,3}(?:,\d{3})+|\d+", re.ASCII)


def verify_counting(reply: str, sample: Sample) -> Verdict:
    r"""Score 1 where the answer is the number that was counted, else 0.

    The whole answer is read: no number is extracted from prose. `verifier_parm` may contain `answer_in` and
    `match`:

    - `math_verify` (the default): the answer has the value of the truth, as V-Triune scores counts (eq. 1).
      `7.0`, `\frac{14}{2}` and `7 cups` are 7; math-verify reads words as products of letters, so "seven" is
      wrong.
    - `equal`, ours: one whole number, in digits or in English words up to ninety-nine. It reads "seven", and
      needs no separate process.
    - `substring`: VLMEvalKit's rule for CountBench, with which V-Triune reports (appendix D): the digits of
      the truth occur anywhere in the answer, so "12" is right for 2. Use it to compare with published
      scores, never to train.

    Call it in the main thread of a process, like `verify_math`.

    Raises:
        DataError: As for `check_counting`.
    """
    truth, match = _truth(sample)
    given = given_answer(reply, sample)
    if given is None:
        return no_answer(sample)
    if match == "math_verify":
        return compared(given, {str(truth): parsed(str(truth))}, str(truth))
    why = f"answered {quote(given)}, truth {truth}"
    if match == "substring":
        return answered(float(str(truth) in given), why)
    number = whole_number(given)
    if number is None:
        return unreadable(f"{quote(given)} is not a whole number")
    return answered(float(number == truth), why)


def check_counting(sample: Sample) -> None:
    """Check that the ground truth is a whole number.

    Raises:
        DataError: If it is not, or an option is unknown.
    """
    _truth(sample)


def counting_form(sample: Sample) -> str:
    """What an answer looks like."""
    return "one whole number, in digits"


def whole_number(text: str) -> int | None:
    """The number that a complete text stands for: `7`, `7.`, `1,200`, `seven`, `Twenty-one`; else None."""
    plain = "-".join(text.casefold().strip().removesuffix(".").split())
    if len(plain) > LONGEST:
        return None
    if _DIGITS.fullmatch(plain):
        return int(plain.replace(",", ""))
    return _WORDS.get(plain)


def _truth(sample: Sample) -> tuple[int, str]:
    options(sample, {"answer_in", "match"})
    match = one_of(sample, "match", MATCHES, default=MATCHES[0])
    number = whole_number(sample.ground_truth)
    if number is None:
        raise DataError(
            f"the ground truth {sample.ground_truth!r} is not a whole number",
            where=where(sample),
            fix="write digits, e.g. 7; other values are for verifier `math`",
        )
    return number, match


VERIFIERS.add(
    NAME,
    Verifier(
        verify_counting,
        check_counting,
        counting_form,
        Case(gold="7", broken_gold="a few", wrong="8"),
        in_worker=True,
        looks_slow=looks_slow,
    ),
)

"""Multiple choice: is the chosen option the right one?"""

import re
from string import ascii_uppercase

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import tags
from vtune.verifiers.exact import normalise
from vtune.verifiers.verifier import options, quote, where

_LETTER = re.compile(r"\(?([A-Za-z])\)?\Z|\(([A-Za-z])\)\s*(.*)|([A-Za-z])[.):]\s*(.*)", re.DOTALL)
"""`B`, `(B)`, `(B) text`, `B.`, `B) text`, `B: text`."""

_LONE_LETTER = re.compile(r"(?<![^\W_])(?!a\s+\w)[A-Za-z](?![^\W_]|['’])")
"""A letter that stands alone, the article `a` aside: in the words after a letter it smells of hedging."""


def verify_choice(reply: str, sample: Sample) -> Verdict:
    """Score 1 where the answer names the right option and no other, else 0.

    An option may be named by its letter (`B`, `B.`, `(B)`), by its exact text, or by both; the case of
    letters does not matter. Where a text could be read both ways (an option whose text is `A`), the
    letter counts. A letter beside the text of another option, or a second letter, is hedging.

    Raises:
        DataError: As `check_choice` does.
    """
    truth = _truth(sample)
    given = tags.answer(reply)
    if given is None:
        return Verdict(0.0, "no single <answer> at the end")
    chosen = chosen_letter(given, sample.choices)
    if chosen is None:
        return Verdict(0.0, f"{quote(given)} names no single option")
    return Verdict(float(chosen == truth), f"chose {chosen}, truth {truth}")


def check_choice(sample: Sample) -> None:
    """See that the ground truth names one option.

    Raises:
        DataError: If it is neither a letter of an option nor the text of exactly one, or if
            `verifier_parm` is not empty.
    """
    _truth(sample)


def chosen_letter(text: str, choices: tuple[str, ...]) -> str | None:
    """The letter of the one option that a text names, or None.

    Args:
        text: An answer, without tags.
        choices: The options in order; empty where they only stand in the prompt. Then any letter is an
            option, and the words behind it are believed unless another letter stands alone in them.
    """
    text = text.strip()
    shape = _LETTER.match(text)
    if shape is not None:
        letter = next(group for group in (shape[1], shape[2], shape[4]) if group is not None).upper()
        rest = shape[3] or shape[5] or ""
        if _names(letter, rest, choices):
            return letter
    same = [index for index, choice in enumerate(choices) if normalise(choice) == normalise(text)]
    return ascii_uppercase[same[0]] if text and len(same) == 1 else None


def _names(letter: str, rest: str, choices: tuple[str, ...]) -> bool:
    if not choices:
        return not _LONE_LETTER.search(rest)
    position = ascii_uppercase.index(letter)
    return position < len(choices) and normalise(rest) in ("", normalise(choices[position]))


def _truth(sample: Sample) -> str:
    options(sample, ())
    if len(sample.choices) > len(ascii_uppercase):
        raise DataError(
            f"{len(sample.choices)} choices have no letters", where=where(sample), fix="keep 26 at most"
        )
    letter = chosen_letter(sample.ground_truth, sample.choices)
    if letter is None:
        listed = ", ".join(sample.choices) or "a letter, A to Z"
        raise DataError(
            f"the ground truth {sample.ground_truth!r} names no single option",
            where=where(sample),
            fix=f"write the letter, or the text of one option: {listed}",
        )
    return letter

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


_NOT_WORDS = re.compile(r"[.()\[\],:;!*#{}]")
_ANSWER_IS = re.compile(r"answer\s+is\s+\**([A-Z])\**(?![A-Za-z])", re.IGNORECASE)

_LAST = 4
"""Words at the end of an answer among which its letter stands (VLMEvalKit)."""


def verify_choice(reply: str, sample: Sample) -> Verdict:
    """Score 1 where the answer names the right option and no other, else 0.

    `verifier_parm` may say how the answer is read, `reading`: `exact` (as if nothing is said) by
    `chosen_letter`, `inferred` by `inferred_letter`, as benchmarks publish it.

    Raises:
        DataError: As `check_choice` does.
    """
    truth = _truth(sample)
    given = tags.answer(reply)
    if given is None:
        return Verdict(0.0, "no single <answer> at the end")
    chosen = read_choice(given, sample)
    if chosen is None:
        return Verdict(0.0, f"{quote(given)} names no single option")
    return Verdict(float(chosen == truth), f"chose {chosen}, truth {truth}")


def check_choice(sample: Sample) -> None:
    """See that the ground truth names one option.

    Raises:
        DataError: If it is neither a letter of an option nor the text of exactly one, or if
            `verifier_parm` holds anything but a `reading` that is known.
    """
    _truth(sample)


def read_choice(answer: str, sample: Sample) -> str | None:
    """The letter of the one option that an answer names, by the sample's `reading`; None: unreadable."""
    return _READINGS[_reading(sample)](answer, sample.choices)


def chosen_letter(text: str, choices: tuple[str, ...]) -> str | None:
    """The letter of the one option that a text names, or None.

    An option may be named by its letter (`B`, `B.`, `(B)`), by its exact text, or by both; the case of
    letters does not matter. Where a text could be read both ways (an option whose text is `A`), the
    letter counts. A letter beside the text of another option, or a second letter, is hedging.

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


def inferred_letter(text: str, choices: tuple[str, ...]) -> str | None:
    """The letter of the option that a sentence means, or None: first by its letter, then by its text.

    What `chosen_letter` reads; else the only letter of an option that stands alone, if it is among the last
    four words, or the one in "the answer is B"; else the only option whose text the answer holds, where the
    answer is no longer than twice all options together.

    Source: VLMEvalKit, `can_infer_option` and `can_infer_text`, without the model that is asked behind them.
    """
    named = chosen_letter(text, choices)
    if named is not None:
        return named
    letters = ascii_uppercase[: len(choices)]
    words = _NOT_WORDS.sub(" ", text).split()
    alone = {word for word in words if len(word) == 1 and word in letters}
    if len(alone) == 1 and words.index(letter := alone.pop()) >= len(words) - _LAST:
        return letter
    said = _ANSWER_IS.search(text)
    if said is not None and said[1].upper() in letters:
        return said[1].upper()
    if len(text) > 2 * sum(map(len, choices)):
        return None
    inside = [
        letter for letter, choice in zip(letters, choices, strict=True) if choice.lower() in text.lower()
    ]
    return inside[0] if len(inside) == 1 else None


_READINGS = {"exact": chosen_letter, "inferred": inferred_letter}


def _reading(sample: Sample) -> str:
    reading = options(sample, {"reading"}).get("reading", "exact")
    if reading not in _READINGS:
        raise DataError(
            f"unknown reading {reading!r}", where=where(sample), fix=f"known: {', '.join(_READINGS)}"
        )
    return str(reading)


def _names(letter: str, rest: str, choices: tuple[str, ...]) -> bool:
    if not choices:
        return not _LONE_LETTER.search(rest)
    position = ascii_uppercase.index(letter)
    return position < len(choices) and normalise(rest) in ("", normalise(choices[position]))


def _truth(sample: Sample) -> str:
    _reading(sample)
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

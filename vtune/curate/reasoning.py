"""Rules for questions with short answers (V-Triune, appendix A, first stage; the four reasoning tasks)."""

import re

from pydantic import Field

from vtune.curate.filters import FILTERS, FilterPart
from vtune.curate.item import Item, Selected
from vtune.schema.sample import Sample
from vtune.verifiers import choice

_BOXED = re.compile(r"\$*\\boxed\{(.*)\}\$*", re.DOTALL)
_OPTION = re.compile(r"(?:^|[\s(])\(?([A-H])[.):]\s*\S")
_LETTER = re.compile(r"\(?([A-Ha-h])\)?[.:]?")
_TRUE_FALSE = frozenset({"true", "false", "yes", "no", "correct", "incorrect", "right", "wrong"})
_LISTED = 2
"""Number of options in a question's text from which it counts as multiple choice."""


class NoGuessing(Selected):
    """Drops multiple-choice and true/false questions: a guess is too often right (V-Triune, appendix A)."""


class AnswerSymbols(Selected):
    """Drops answers with symbols that a correct reply may leave out, and would then fail to match."""

    symbols: str = Field(default="=[]():", min_length=1)
    """Each character is a symbol (V-Triune, appendix A)."""


class AnswerLength(Selected):
    """Drops long answers."""

    at_most: int = Field(default=20, gt=0)
    """Characters, without the box around the answer (V-Triune, appendix A)."""


def guessable(spec: NoGuessing, item: Item) -> str | None:
    """The reason to drop a question that can be guessed, or None.

    A sample is multiple choice if it has choices or the verifier `choice`, or if its truth is a letter that
    the question lists as one of at least two options.
    """
    sample = item.sample
    truth = answer_of(sample)
    if sample.choices or sample.verifier == choice.NAME:
        return "multiple choice"
    listed = set(_OPTION.findall(sample.question))
    letter = _LETTER.fullmatch(truth)
    if letter is not None and letter[1].upper() in listed and len(listed) >= _LISTED:
        return f"multiple choice: the answer {truth!r} is one of the options {', '.join(sorted(listed))}"
    if truth.lower().rstrip(".") in _TRUE_FALSE:
        return f"true or false: the answer is {truth!r}"
    return None


def has_symbols(spec: AnswerSymbols, item: Item) -> str | None:
    """The reason to drop an answer that contains one of the symbols, or None."""
    truth = answer_of(item.sample)
    found = [symbol for symbol in spec.symbols if symbol in truth]
    return f"the answer {_short(truth)} holds {' '.join(found)}" if found else None


def too_long(spec: AnswerLength, item: Item) -> str | None:
    """The reason to drop an answer that is longer than allowed, or None."""
    truth = answer_of(item.sample)
    if len(truth) <= spec.at_most:
        return None
    return f"the answer {_short(truth)} has {len(truth)} characters, at most {spec.at_most} are allowed"


def answer_of(sample: Sample) -> str:
    r"""The ground truth without a `\boxed{}` around it."""
    text = sample.ground_truth.strip()
    boxed = _BOXED.fullmatch(text)
    return boxed[1].strip() if boxed else text


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


FILTERS.add("no_guessing", FilterPart(NoGuessing, guessable, drops={"choices": ("red", "blue")}))
FILTERS.add("answer_symbols", FilterPart(AnswerSymbols, has_symbols, drops={"ground_truth": "x = 2"}))
FILTERS.add("answer_length", FilterPart(AnswerLength, too_long, drops={"ground_truth": "1" * 21}))

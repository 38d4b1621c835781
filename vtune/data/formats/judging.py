"""Which verifier judges a row that names none."""

import re

from vtune.errors import DataError
from vtune.verifiers import VERIFIERS, choice, exact, judge, math

_LETTER = re.compile(r"\(?[A-Z]\)?\.?")
_NAMED = re.compile(r"\(?([a-z])[.):]+\s*(\S.*)", re.DOTALL)
_COMMAND = re.compile(r"\\(?:text|mathrm|mbox)\s*\{[^{}]*\}|\\[A-Za-z]+|\b(?:sqrt|sin|cos|tan|log|exp|pi)\b")
_WORD = re.compile(r"[A-Za-z]{2,}")


def guess_verifier(ground_truth: str, choices: tuple[str, ...] = (), *, model: bool = False) -> str:
    """The verifier that suits a ground truth.

    `choice` for a letter, and for the text of one of the options; `math` for a number or an expression;
    then `judge` where the file leaves judging to a model, else `exact`.

    Args:
        ground_truth: As the file gives it.
        choices: Options that the question lists.
        model: Whether the file leaves judging to a model.
    """
    truth = ground_truth.strip()
    if _LETTER.fullmatch(truth) or _is_option(truth.lower(), [choice.strip().lower() for choice in choices]):
        return choice.NAME
    if _is_expression(truth):
        return math.NAME
    return judge.NAME if model else exact.NAME


def known_verifier(name: str) -> str:
    """The name itself.

    Raises:
        DataError: If no verifier has it.
    """
    if name not in VERIFIERS:
        raise DataError(f"unknown verifier {name!r}", fix=VERIFIERS.meant(name))
    return name


def _is_option(truth: str, choices: list[str]) -> bool:
    """Whether it is the text of one option, with or without its letter."""
    if choices.count(truth) == 1:
        return True
    named = _NAMED.fullmatch(truth)
    return named is not None and choices[ord(named[1]) - ord("a") :][:1] == [named[2]]


def _is_expression(text: str) -> bool:
    bare = _COMMAND.sub(" ", text)
    if _WORD.search(bare):
        return False
    return bool(re.search(r"\d", text)) or "\\" in text

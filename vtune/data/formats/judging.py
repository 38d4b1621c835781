"""Which verifier judges a row that does not name one."""

import re

from vtune.errors import DataError
from vtune.verifiers import VERIFIERS, choice, exact, judge, math

_LETTER = re.compile(r"\(?[A-Z]\)?\.?")
_SMALL = re.compile(r"\(?([a-z])\)?\.?")
"""A letter only if there are as many options: elsewhere `x` is a variable."""
_NAMED = re.compile(r"\(?([a-z])[.):]+\s*(\S.*)", re.DOTALL)
_COMMAND = re.compile(r"\\(?:text|mathrm|mbox)\s*\{[^{}]*\}|\\[A-Za-z]+|\b(?:sqrt|sin|cos|tan|log|exp|pi)\b")
_WORD = re.compile(r"[A-Za-z]{2,}")
_UNIT = r"(?:\s*%|\s*°\s*[CF]?)?"
_NUMBER = rf"[-+−]?[$€£]?[0-9][0-9.,]*{_UNIT}"
_DATE = r"[0-9]+(?:[-/.][0-9]+){2,}"
_TIME = r"[0-9]{1,2}(?::[0-9]{2})+(?:\s*[AaPp]\.?[Mm]\.?)?"
_DASH = r"\s*[-‐-―−]\s*"
_COMPUTED = re.compile(
    rf"{_NUMBER}(?:{_DASH}{_NUMBER})+(?:\s+[A-Za-z])?|{_TIME}{_DASH}{_TIME}|{_DATE}(?:[T\s]\s*{_TIME})?|{_TIME}"
    r"|(?:19|20)[0-9]{2}/[0-9]{2}|(?![1-9][0-9]{0,2}(?:\s[0-9]{3})+\Z)[0-9]+(?:\s+[0-9]+)+"
)
_WRITTEN = re.compile(
    r"[0-9]{1,2}\s*[AaPp]\.?[Mm]\.?|v[0-9]+(?:\.[0-9]+)+"
    rf"|[#<>≤≥~≈]\s*{_NUMBER}|[0-9][0-9.,]*\s*\+|[-+−]?[0-9.,]+\s*°\s*[CF]|[0-9]{{4}}\s*年.*"
)
"""Digits that do not stand for a value: ranges, game scores, dates, times, versions, addresses. math-verify
would compute them (2024-01-02 and 2024-02-01 are both 2021, 1:20 is 2:40, 3-2 is 2-1) or fail to parse them.
2:1 is more likely a ratio, which can be written in many ways."""


def guess_verifier(ground_truth: str, choices: tuple[str, ...] = (), *, model: bool = False) -> str:
    """The verifier that suits a ground truth.

    `choice` for a letter or the text of an option; `math` for a number or an expression (dates, times, ranges
    and game scores are neither); otherwise `judge` if the file expects a model to judge, else `exact`.

    Args:
        ground_truth: As in the file.
        choices: Options listed in the question.
        model: Whether the file expects a model to judge.
    """
    truth = ground_truth.strip()
    if _LETTER.fullmatch(truth) or _is_option(truth.lower(), [choice.strip().lower() for choice in choices]):
        return choice.NAME
    if (small := _SMALL.fullmatch(truth)) and ord(small[1]) - ord("a") < len(choices):
        return choice.NAME
    if _is_expression(truth):
        return math.NAME
    return judge.NAME if model else exact.NAME


def is_computed(truth: str) -> bool:
    """Whether math-verify would compute digits that do not stand for a value (a date, a time, a range)."""
    return _COMPUTED.fullmatch(truth.strip()) is not None


def known_verifier(name: str) -> str:
    """The name itself, checked.

    Raises:
        DataError: If there is no such verifier.
    """
    if name not in VERIFIERS:
        raise DataError(f"unknown verifier {name!r}", fix=VERIFIERS.meant(name))
    return name


def _is_option(truth: str, choices: list[str]) -> bool:
    """Whether the text equals exactly one option, with or without its letter."""
    if choices.count(truth) == 1:
        return True
    named = _NAMED.fullmatch(truth)
    return named is not None and choices[ord(named[1]) - ord("a") :][:1] == [named[2]]


def _is_expression(text: str) -> bool:
    if _WORD.search(_COMMAND.sub(" ", text)) or _WRITTEN.fullmatch(text) or is_computed(text):
        return False
    return bool(re.search(r"[0-9]", text)) or "\\" in text

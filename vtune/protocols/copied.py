"""Whether an answer that a model extracted from a reply can really have come from it.

A model that extracts an answer may change its form: a letter for an option, a number without its unit, a
fraction for a decimal. An answer with neither a number nor most of its words from the reply was not extracted
from it, and says nothing about it. These rules are ours; upstream accepts any text.
"""

import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction
from string import ascii_uppercase

_LETTER = re.compile(
    r"\W*(?:(?:the|correct|final|answer|option|choice|is|text|boxed)\b\W*)*([A-Za-z])(?:\W*|\W*[).:\]]\W.*)",
    re.DOTALL | re.IGNORECASE,
)
"""A single letter, by itself or before the text of its option."""
_WORD = re.compile(r"\d+|[a-z]+|[^\W\d_a-z]")
"""Letters of other scripts count separately, since not all scripts put spaces between words."""
_STEM = 4
"""Number of leading letters of a word that are compared: "increases" matches "increasing"."""
_THOUSANDS = re.compile(r"(?<=\d)(?:,|\\,|\{,\})(?=\d{3}(?!\d))")
_POWER = re.compile(r"\s*(?:\\times|\\cdot|×|·|\*|x)\s*10\s*\^?\s*\{?\s*([-−]?\d{1,3})\}?")
_FRACTION = re.compile(r"\\[dt]?frac\s*\{?(\d+)\}?\s*\{?(\d+)\}?")
_NUMBER = re.compile(r"(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:e[-+]?\d{1,3}(?!\d))?")
_RATIO = re.compile(r"(\d{1,30})\s*/\s*(\d{1,30})")
_SPELT = re.compile(
    r"\b(?:zero|no|none|one|single|once|first|two|pair|twice|second|three|thirds?|hal(?:f|ves)|quarters?"
    r"|(?:four|five|fif|six|seven|eight?|nine?|ten|eleven|twelve|twelf)(?:ths?)?|dozen|hundred|thousand"
    r"|million|(?:thir|four|fif|six|seven|eigh|nine)teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty)\b"
    r"|[零一二三四五六七八九十百千万两半]",
    re.IGNORECASE,
)
"""A number in words; the model is trusted on which one it is."""
_DECIMALS = 3
"""Limit on the decimals of a number that are compared."""


def may_be_from(found: str, reply: str, question: str, choices: Sequence[str]) -> bool:
    """Whether an extracted answer may be the one that a reply gives.

    Args:
        found: What a model has extracted, not empty.
        reply: The reply that it was extracted from.
        question: As it was asked; it may list options as "B." or "(B)".
        choices: The options, if known.
    """
    letter = _LETTER.fullmatch(found)
    if letter and _is_option(letter[1], question, choices):
        return True
    if found in reply or any(_names(found, choice) for choice in choices):
        return True
    return any(_shares(found, source) for source in (reply, *choices))


def _is_option(letter: str, question: str, choices: Sequence[str]) -> bool:
    """Whether a question has an option with this letter."""
    if choices:
        return letter.upper() in ascii_uppercase[: len(choices)]
    return re.search(rf"\b{letter.upper()}[.:)\]]", question) is not None


def _names(found: str, choice: str) -> bool:
    """Whether a text contains all words of an option; a single letter occurs in too many."""
    words = _stems(choice)
    return len(choice) > 1 and bool(words) and set(words) <= set(_stems(found))


def _shares(found: str, source: str) -> bool:
    """Whether a text shares a number with another one, in any form, or at least half of its words."""
    numbers = _numbers(found)
    if numbers:
        known = _numbers(source)
        if _SPELT.search(source) or any(_same(one, other) for one in numbers for other in known):
            return True
    words, others = _stems(found), set(_stems(source))
    return bool(words) and 2 * sum(word in others for word in words) >= len(words)


def _stems(text: str) -> list[str]:
    return [word[:_STEM] for word in _WORD.findall(_plain(text))]


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().replace("⁄", "/").replace("π", "pi")


def _numbers(text: str) -> set[Fraction]:
    """All numbers of a text: as written, quotients, and, if there are percentages, also divided by 100."""
    text = _FRACTION.sub(r"\1/\2", _POWER.sub(r"e\1", _THOUSANDS.sub("", _plain(text)))).replace("−", "-")
    found = {Fraction(number) for number in _NUMBER.findall(text)}
    quotients = ((int(one), int(other)) for one, other in _RATIO.findall(text))
    found |= {Fraction(one, other) for one, other in quotients if other}
    return found | ({number / 100 for number in found} if "%" in text else set())


def _same(one: Fraction, other: Fraction) -> bool:
    """Whether two numbers agree to the precision of the first: rounded or truncated to its decimals."""
    places = next((number for number in range(_DECIMALS) if (one * 10**number).denominator == 1), _DECIMALS)
    return one == other or abs(one - other) < Fraction(1, 10**places)

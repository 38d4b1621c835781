"""Text in any script as comparable parts: words, or characters where spaces do not separate words."""

import re
import unicodedata
from functools import cache

UNBROKEN = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ece"  # Lao
    "\u1000-\u103f\u1050-\u109f"  # Burmese
    "\u1780-\u17d3"  # Khmer
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
)
"""Characters of text without spaces; for a character class of a pattern."""
UNSPACED = "\u1100-\u11ff\uac00-\ud7a3" + UNBROKEN
"""The same plus Korean, whose spaces do not separate words: particles are attached to them."""

_UNSPACED = re.compile(f"[{UNSPACED}]")
_ASCII_WORD = re.compile(r"\w+", re.ASCII)
_GROUPED = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:([,'\u2019\u00a0\u2009\u202f])\d{3})(?:\1\d{3})*(?!,?\d)")
"""A number with separated thousands. A full stop does not count, since it may begin a fraction, nor a space,
which may separate two numbers; 0,125 is a fraction. 3,141 is read as 3141."""
_DECIMAL = re.compile(r"(?<![\d.,])(\d+\.|0,)(?=\d+(?![.,]?\d))")
"""A number before its decimals. If another full stop follows, it is a date or a section number."""


def plain(text: str) -> str:
    """A text in lower case, with one spelling of each character (NFKC): é is é however it was composed."""
    if text.isascii():
        return text.casefold()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def is_spaced(text: str) -> bool:
    """Whether spaces separate all words of a text."""
    return text.isascii() or not _UNSPACED.search(text)


@cache
def marks() -> str:
    """Characters on or beside a letter that belong to its word; for a character class of a pattern.

    The vowel signs of Hindi, Tamil or Arabic, combining accents, and the two characters that
    join letters or keep them apart. The words of `re` are cut at them, those of Unicode are not (UTS #18,
    annex C).
    """
    joining = "\u200c\u200d"
    scripts = map(chr, range(0x300, 0x20000))  # above are only Chinese characters
    return joining + "".join(one for one in scripts if unicodedata.category(one).startswith("M"))


@cache
def _word() -> re.Pattern[str]:
    # No mark is below U+0300; checking that first makes text without marks ten times as fast.
    return re.compile(rf"\w+(?:(?![\0-\u02ff])[{marks()}]+\w*)*")


@cache
def _run() -> re.Pattern[str]:
    # Marks of scripts without spaces are in UNSPACED already.
    spaced = rf"[^\W{UNSPACED}]"
    return re.compile(rf"[{UNSPACED}]+|{spaced}+(?:[{marks()}]+{spaced}*)*")


def spaced_words(text: str) -> list[str]:
    """The words of a text whose script separates them, each with all marks on its letters."""
    return (_ASCII_WORD if text.isascii() else _word()).findall(text)


def runs(text: str) -> list[tuple[str, bool]]:
    """The words of a plain text, and its runs of characters without spaces, each with whether it is a run."""
    if is_spaced(text):
        return [(word, False) for word in spaced_words(text)]
    return [(run, bool(_UNSPACED.match(run))) for run in _run().findall(text)]


def spelled(text: str, *, keep_case: bool = False) -> str:
    """The words of a text, separated by spaces; in scripts without spaces, each character.

    Thousands separators are dropped: 1,234 is 1234. Decimals belong to their number: 1234 does not occur in
    1234.5.
    """
    text = _GROUPED.sub(lambda number: number[0].replace(number[1], ""), text)
    text = _DECIMAL.sub(lambda number: f"{number[1][:-1]}_", text)
    text = unicodedata.normalize("NFKC", text) if keep_case else plain(text)
    return " ".join(" ".join(run) if unspaced else run for run, unspaced in runs(text))

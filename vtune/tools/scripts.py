"""Text of any script in parts that can be compared: words, and characters where no space parts words."""

import re
import unicodedata

UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ece"  # Lao
    "\u1000-\u103f\u1050-\u109f"  # Burmese
    "\u1100-\u11ff\uac00-\ud7a3"  # Korean, whose particles are written onto its words
    "\u1780-\u17d3"  # Khmer
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
)
"""What parts of text are made of in which no space stands between words; for a set of a pattern."""

_UNSPACED = re.compile(f"[{UNSPACED}]")
_WORD = re.compile(r"\w+")
_RUN = re.compile(rf"[{UNSPACED}]+|[^\W{UNSPACED}]+")
_GROUPED = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:([,'\u2019\u00a0\u2009\u202f])\d{3})(?:\1\d{3})*(?!,?\d)")
"""A number whose thousands are set apart. Not by a full stop, which may begin a fraction, nor by a space,
which may part two numbers; 0,125 is a fraction. 3,141 is taken for 3141."""


def plain(text: str) -> str:
    """A text without case, in one spelling of each character (NFKC): é is é however it was put together."""
    if text.isascii():
        return text.casefold()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def is_spaced(text: str) -> bool:
    """Whether spaces part all words of a text."""
    return text.isascii() or not _UNSPACED.search(text)


def runs(text: str) -> list[tuple[str, bool]]:
    """The words of a plain text, and its runs of characters without spaces; with which of both each is."""
    if is_spaced(text):
        return [(word, False) for word in _WORD.findall(text)]
    return [(run, bool(_UNSPACED.match(run))) for run in _RUN.findall(text)]


def spelled(text: str) -> str:
    """The words of a text, with a space between them, and so each character where no space parts words.

    Marks at the thousands of a number are left out: 1,234 is 1234.
    """
    text = _GROUPED.sub(lambda number: number[0].replace(number[1], ""), text)
    return " ".join(" ".join(run) if unspaced else run for run, unspaced in runs(plain(text)))

"""Normalises passages, answers and queries, so that HTML, Markdown and accents make no difference."""

import html
import re
import unicodedata

_UNDERSCORE = re.compile(r"(?<!\d)_|_(?!\d)")
"""Markup, or a space in a URL; between digits it may separate thousands."""
_PERCENT = re.compile(r"(?<=\d)\s*(?:[%\uff05]|(?:percent|per cent|pct)(?![A-Za-z]))", re.IGNORECASE)
_UNIT = re.compile(r"(?<=\d)(?=(?:[kcmn]m|[km]g|ml|ft|lbs?|mph|[kMG]?Hz|[kMG]W|[kMGT]B)(?![A-Za-z\d]))")
"""Between a number and its unit. Single letters are left alone: 5m may be millions, and 5s a phone."""
_ACCENTS = re.compile(r"(?<=[A-Za-z])[\u0300-\u036f]+")
"""Accents on Latin letters; in other scripts such marks distinguish letters."""


def written(text: str) -> str:
    """Decode HTML entities, make underscores spaces and signs words, separate numbers from units."""
    text = _UNDERSCORE.sub(" ", html.unescape(text)).replace("&", " and ")
    return _UNIT.sub(" ", _PERCENT.sub(" percent", text))


def without_accents(text: str) -> str:
    """Latin letters without their diacritics."""
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text)))

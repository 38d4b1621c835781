"""Normalises passages, answers and queries, so that HTML, Markdown and accents make no difference."""

import html
import re
import unicodedata

_UNDERSCORE = re.compile(r"(?<!\d)_|_(?!\d)")
"""Markup, or the space of an address; between digits it may part thousands."""
_PERCENT = re.compile(r"(?<=\d)\s*(?:[%\uff05]|(?:percent|per cent|pct)(?![A-Za-z]))", re.IGNORECASE)
_UNIT = re.compile(r"(?<=\d)(?=(?:[kcmn]m|[km]g|ml|ft|lbs?|mph|[kMG]?Hz|[kMG]W|[kMGT]B)(?![A-Za-z\d]))")
"""Between a number and its unit. Single letters are left alone: 5m may be millions, and 5s a telephone."""
_ACCENTS = re.compile(r"(?<=[A-Za-z])[\u0300-\u036f]+")
"""Of Latin letters; elsewhere such marks tell letters apart."""


def written(text: str) -> str:
    """Entities of HTML read, underscores as spaces, signs as words, numbers apart from their units."""
    text = _UNDERSCORE.sub(" ", html.unescape(text)).replace("&", " and ")
    return _UNIT.sub(" ", _PERCENT.sub(" percent", text))


def without_accents(text: str) -> str:
    """Latin letters without what stands above and below them."""
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text)))

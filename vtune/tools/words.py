"""How text becomes the words that an index knows."""

import re

from bm25s.stopwords import STOPWORDS_EN

STOP_WORDS = frozenset(STOPWORDS_EN)
"""Lucene's list for English, as bm25s has it."""

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The words of a text, lower case, stop words included; numbers and single letters are words too."""
    return _WORD.findall(text.casefold())

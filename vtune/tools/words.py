"""How text becomes the words that an index knows."""

import re
from itertools import pairwise

from bm25s.stopwords import STOPWORDS_EN

from vtune.tools.scripts import is_spaced, plain, runs

STOP_WORDS = frozenset(STOPWORDS_EN)
"""Lucene's list for English, as bm25s has it."""

PAIRS = "pairs"
"""How an index is cut into words, by its manifest: by `words`; where it says nothing, by `whole_words`."""

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The words of a text, lower case, stop words included; numbers and single letters are words too.

    Where no space parts words, each pair of characters that follow each other is one (as Lucene's CJKAnalyzer
    has it), and a character alone.
    """
    text = plain(text)
    if is_spaced(text):
        return _WORD.findall(text)
    found: list[str] = []
    for run, unspaced in runs(text):
        if unspaced and len(run) > 1:
            found += map("".join, pairwise(run))
        else:
            found.append(run)
    return found


def whole_words(text: str) -> list[str]:
    """The words of a text where no script is told from another: those of indexes that say no `cut`."""
    return _WORD.findall(text.casefold())

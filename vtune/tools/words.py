"""How text is split into the words of an index."""

import re
from itertools import pairwise

from bm25s.stopwords import STOPWORDS_EN

from vtune.tools.scripts import UNSPACED, is_spaced, plain, runs, spaced_words

STOP_WORDS = frozenset(STOPWORDS_EN)
"""Lucene's list for English, as bm25s has it."""

CUT = "marks"
"""How an index is cut into words, by its manifest: by `words`."""
PAIRS = "pairs"
"""An index of before: by `bare_words`. Where the manifest says nothing, by `whole_words`."""

_WORD = re.compile(r"\w+")
_BARE_RUN = re.compile(rf"[{UNSPACED}]+|[^\W{UNSPACED}]+")


def words(text: str) -> list[str]:
    """The words of a text, lower case, stop words included; numbers and single letters are words too.

    Where no space parts words, each pair of characters that follow each other is one (as Lucene's CJKAnalyzer
    has it), and a character alone.
    """
    text = plain(text)
    if is_spaced(text):
        return spaced_words(text)
    found: list[str] = []
    for run, unspaced in runs(text):
        found += _pairs(run) if unspaced else [run]
    return found


def _pairs(run: str) -> list[str]:
    return list(map("".join, pairwise(run))) if len(run) > 1 else [run]


def bare_words(text: str) -> list[str]:
    """The same, but cut at every mark, as at the vowels of Hindi: those of indexes cut by `PAIRS`."""
    text = plain(text)
    if is_spaced(text):
        return _WORD.findall(text)
    found: list[str] = []
    for run in _BARE_RUN.findall(text):
        found += [run] if is_spaced(run) else _pairs(run)
    return found


def whole_words(text: str) -> list[str]:
    """The words of a text where no script is told from another: those of indexes that say no `cut`."""
    return _WORD.findall(text.casefold())

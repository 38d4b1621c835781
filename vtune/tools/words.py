"""How text is split into the words of an index."""

import re
from itertools import pairwise

from bm25s.stopwords import STOPWORDS_EN

from vtune.tools.scripts import UNSPACED, is_spaced, plain, runs, spaced_words

STOP_WORDS = frozenset(STOPWORDS_EN)
"""Lucene's list for English, as in bm25s."""

CUT = "marks"
"""The manifest's name for an index cut by `words`."""
PAIRS = "pairs"
"""The same for older indexes, cut by `bare_words`. If the manifest has no such entry: by `whole_words`."""

_WORD = re.compile(r"\w+")
_BARE_RUN = re.compile(rf"[{UNSPACED}]+|[^\W{UNSPACED}]+")


def words(text: str) -> list[str]:
    """The words of a text in lower case, including stop words; numbers and single letters are words too.

    In scripts without spaces, each pair of adjacent characters is a word (as in Lucene's CJKAnalyzer), and so
    is a single character.
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
    """The same, but cut at every mark, e.g. at the vowel signs of Hindi: for indexes with `PAIRS`."""
    text = plain(text)
    if is_spaced(text):
        return _WORD.findall(text)
    found: list[str] = []
    for run in _BARE_RUN.findall(text):
        found += [run] if is_spaced(run) else _pairs(run)
    return found


def whole_words(text: str) -> list[str]:
    """The words of a text, treating all scripts alike: for indexes without a `cut` entry."""
    return _WORD.findall(text.casefold())

"""How alike two tool calls are: one function per tool type (Dong et al., appendix B.3).

A tool has a type (`ToolPart.credit`): what distinguishes its calls, and a function
that compares many pairs of them at a time, in [0, 1], symmetric, and 1 for a call with itself.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from vtune.schema.box import Box
from vtune.schema.trajectory import Call, Trajectory
from vtune.tools.scripts import spaced_words

Indices = NDArray[np.int64]
Values = NDArray[np.float64]
Flags = NDArray[np.bool_]
Number = TypeVar("Number", np.int64, np.uint64, np.float64)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Which calls to compare; both calls of a pair are about the same question."""

    left: Indices
    """Index of one call of each pair, shape (P,)."""
    right: Indices
    """Index of the other, shape (P,)."""
    question: Indices
    """The question of each call, shape (N,)."""


@dataclass(frozen=True, slots=True)
class ToolType:
    """Calls that seek the same kind of information."""

    name: str
    """Its name in `credit.tools` of a recipe."""
    argument: Callable[[Trajectory, Call], Any]
    """What distinguishes calls; None if a call seeks nothing of this kind."""
    similarity: Callable[[Sequence[Any], Pairs], Values]
    """(arguments of the N calls, pairs) -> similarities, shape (P,)."""


Look = Sequence[tuple[int | bytes | str, Box]]
"""The regions that a call showed: an identifier of the picture, and the box in its pixels."""

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a about after all also am an and any are as at be because been before being between both but by
        can could did do does doing during each for from had has have having he her here him his how i
        if in into is it its me more most my no nor not of off on once only or other our out over own
        same she should so some such than that the their them then there these they this those through
        to too under until up very was we were what when where which while who whom whose why will with
        would you your
        """,
    )
)
"""Words dropped from queries before comparison; ours: the paper mentions a list without giving it."""

BLOCK = 8192
"""Number of pairs of crops compared at a time: their numbers fit in the processor's cache."""

DENSE = 8
"""Numbers get a lookup table if it has at most this many times as many entries as there are numbers."""

_END = "\n"
"""Separator after each text; no text contains it."""
_WORD_OR_END = re.compile(r"\w+|\n", re.ASCII)
_CODES = {_END: 0} | {word: code for code, word in enumerate(sorted(STOP_WORDS), start=1)}
_JSON_SPACE = " \t\n\r"
_decode = json.JSONDecoder().raw_decode
"""Takes half the time of `json.loads`."""


def same(arguments: Sequence[Any], pairs: Pairs) -> Values:
    """1 for every pair: the tool has no parameters, and all calls about a question are one action."""
    return np.ones(len(pairs.left))


def overlap(arguments: Sequence[Look], pairs: Pairs) -> Values:
    """IoU of two crops; for calls with several, the mean over all crops of the best IoU in the other call.

    If both have one crop, that is the IoU. It does not depend on the order of crops, and is 1 only if
    each crop of either call is also in the other. Crops of different pictures do not overlap.
    """
    counts = np.array([len(look) for look in arguments], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    flat = [region for look in arguments for region in look]
    edges = np.fromiter(chain.from_iterable(box for _, box in flat), np.float64, 4 * len(flat))
    edges = edges.reshape(-1, 4).T.copy()
    numbers: dict[int | bytes | str, int] = {}
    pictures = np.array([numbers.setdefault(picture, len(numbers)) for picture, _ in flat], dtype=np.int64)
    regions = _Regions(edges, pictures, starts, counts)
    blocks = range(0, len(pairs.left), BLOCK)
    found = [_overlap(regions, pairs.left[at : at + BLOCK], pairs.right[at : at + BLOCK]) for at in blocks]
    return np.concatenate([*found, np.empty(0)])


def wording(arguments: Sequence[str], pairs: Pairs) -> Values:
    """0.3 J + 0.5 OC + 0.2 BG of two queries (Dong et al., eq. 5).

    J and OC are the Jaccard and the overlap coefficient of the sets of words without stop words, BG the
    Jaccard coefficient of the sets of character bigrams. Queries are compared in Unicode's NFKC form,
    in lower case, with single spaces (ours). A query made up of stop words keeps them; one without a word
    counts as a single word, one with a single character as a single bigram.
    """
    texts = [_plain(query) for query in arguments]
    shared, first, second = _shared(*_terms(texts), pairs)
    jaccard = shared / (first + second - shared)
    coefficient = shared / np.minimum(first, second)
    shared, first, second = _shared(*_bigrams(texts), pairs)
    return 0.3 * jaccard + 0.5 * coefficient + 0.2 * (shared / (first + second - shared))


def no_argument(trajectory: Trajectory, call: Call) -> tuple[()]:
    """Nothing distinguishes calls."""
    return ()


def look(trajectory: Trajectory, call: Call) -> Look | None:
    """The regions that a call showed.

    Crops of the sample's pictures are identified by index, others by the picture's bytes.

    A crop that no picture shows, or whose picture does not show it, is not a look.
    """
    found = []
    for crop in call.crops:
        if crop.shown is None or crop.look not in (None, "verified"):
            continue
        key: int | bytes | str = crop.image
        picture = trajectory.images[crop.image]
        if picture.origin != "input":
            key = picture.data or picture.path or crop.image
        found.append((key, crop.bbox))
    return found or None


def query(trajectory: Trajectory, call: Call) -> str | None:
    """What a call searched for, from the model's own JSON; None if it cannot be read."""
    text = call.arguments.strip(_JSON_SPACE)
    try:
        arguments, end = _decode(text)
    except ValueError:
        return None
    if end < len(text):
        return None
    query = arguments.get("query") if isinstance(arguments, dict) else None
    return query if isinstance(query, str) and query.strip() else None


SAME = ToolType("image_search", no_argument, same)
LOOKS = ToolType("zoom", look, overlap)
"""Code that crops also zooms: its boxes are in `Call.crops`, like those of the zoom tool."""
QUERIES = ToolType("text_search", query, wording)


class _Regions(NamedTuple):
    """The crops of all calls, concatenated."""

    edges: Values
    """x0, y0, x1, y1 as rows, shape (4, R)."""
    pictures: Indices
    """Index of the picture of each crop, shape (R,)."""
    starts: Indices
    """Where the crops of each call begin, shape (N,)."""
    counts: Indices
    """Number of crops per call, shape (N,)."""


def _overlap(regions: _Regions, left: Indices, right: Indices) -> Values:
    """`overlap` for some of the pairs."""
    edges, pictures, starts, counts = regions
    several = (_of(counts, left) > 1) | (_of(counts, right) > 1)
    similarity = np.empty(len(left))
    plain = np.flatnonzero(~several)
    similarity[plain] = _iou(edges, pictures, _of(starts, _of(left, plain)), _of(starts, _of(right, plain)))

    # A table per remaining pair: a row for each crop of the left call, a column for each of the right.
    tabled = np.flatnonzero(several)
    left, right = _of(left, tabled), _of(right, tabled)
    high, wide = _of(counts, left), _of(counts, right)
    size = high * wide
    first = np.cumsum(size) - size
    pair, row = _expand(high)
    length = _of(wide, pair)
    line, column = _expand(length)
    one, other = _of(_of(starts, left), pair) + row, _of(_of(starts, right), pair)
    found = _iou(edges, pictures, _of(one, line), _of(other, line) + column)
    best = _sums_of_maxima(found, _of(first, pair) + row * length, pair, len(left))
    # The same tables transposed: a row for each crop of the right call.
    turned = np.empty(len(found))
    turned[_of(_of(first, pair) + row, line) + column * _of(_of(high, pair), line)] = found
    pair, row = _expand(wide)
    best += _sums_of_maxima(turned, _of(first, pair) + row * _of(high, pair), pair, len(left))
    similarity[tabled] = best / (high + wide)
    return similarity


def _expand(counts: Indices) -> tuple[Indices, Indices]:
    """Ranges [0, count), concatenated: index of the range, and the value."""
    row = np.repeat(np.arange(len(counts)), counts)
    return row, np.arange(len(row)) - _of(np.cumsum(counts) - counts, row)


def _sums_of_maxima(values: Values, starts: Indices, pair: Indices, count: int) -> Values:
    """Per pair, the sum over the rows of its table of each row's largest value.

    Args:
        values: The tables, row by row, concatenated.
        starts: Where each row begins.
        pair: The pair that each row belongs to, of `count`.
        count: Number of pairs.
    """
    highest = np.maximum.reduceat(values, starts) if len(starts) else values
    return np.bincount(pair, weights=highest, minlength=count).astype(np.float64)


def _iou(edges: Values, pictures: Indices, left: Indices, right: Indices) -> Values:
    """IoU of pairs of boxes, whose x0, y0, x1, y1 are the rows of `edges`."""
    x0, y0, x1, y1 = edges
    areas = np.maximum(x1 - x0, 0) * np.maximum(y1 - y0, 0)

    def shared_side(low: Values, high: Values) -> Values:
        found = np.minimum(_of(high, left), _of(high, right))
        found -= np.maximum(_of(low, left), _of(low, right))
        return np.maximum(found, 0, out=found)

    shared = shared_side(x0, x1)
    shared *= shared_side(y0, y1)
    shared *= _of(pictures, left) == _of(pictures, right)
    union = _of(areas, left)
    union += _of(areas, right)
    union -= shared
    ratio: Values = np.divide(shared, union, out=np.zeros(len(left)), where=union > 0)
    return ratio


def _of(values: NDArray[Number], places: Indices) -> NDArray[Number]:
    """`values[places]`, twice as fast: all places exist, so `clip` skips the check."""
    return values.take(places, mode="clip")


def _plain(query: str) -> str:
    # ASCII is always in NFKC, and lower() is enough for its case.
    folded = query.lower() if query.isascii() else unicodedata.normalize("NFKC", query).casefold()
    return " ".join(folded.split())


def _terms(texts: Sequence[str]) -> tuple[Indices, Indices]:
    """(text, code of a word) for every occurrence of a word that counts; at least one per text."""
    codes = _CODES.copy()
    found = _words_and_ends(texts)
    for word in dict.fromkeys(found):
        codes.setdefault(word, len(codes))
    code = np.fromiter(map(codes.__getitem__, found), np.int64, len(found))
    ends = code == 0
    row, code = (np.cumsum(ends) - ends)[~ends], code[~ends]
    telling = code >= len(_CODES)
    has_telling = np.bincount(row[telling], minlength=len(texts)) > 0
    kept = telling | ~has_telling[row]
    bare = np.flatnonzero(np.bincount(row, minlength=len(texts)) == 0)
    own = np.array([codes.setdefault(texts[text], len(codes)) for text in bare.tolist()], dtype=np.int64)
    return np.concatenate([row[kept], bare]), np.concatenate([code[kept], own])


def _words_and_ends(texts: Sequence[str]) -> list[str]:
    together = _END.join([*texts, ""])
    if together.isascii():
        return _WORD_OR_END.findall(together)
    return [part for text in texts for part in (*spaced_words(text), _END)]


def _bigrams(texts: Sequence[str]) -> tuple[Indices, Indices]:
    """(text, code of a character bigram) for every position; a lone character is a bigram by itself."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    characters = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.int32)
    number, distinct = _ranked(characters)
    last = np.cumsum(lengths) - 1
    code = number * (len(distinct) + 1)
    code[:-1] += number[1:] + 1
    # The last character of a text has no successor.
    code[last] = number[last] * (len(distinct) + 1)
    kept = np.ones(len(number), dtype=bool)
    kept[last] = lengths == 1
    return np.repeat(np.arange(len(texts)), lengths)[kept], code[kept]


def _shared(rows: Indices, codes: Indices, pairs: Pairs) -> tuple[Values, Values, Values]:
    """Sizes of the intersection, of the left and of the right set, for each pair.

    Row `rows[k]` contains `codes[k]`. Each question has separate columns, one bit each, so sets are only as
    wide as the vocabulary of one question.
    """
    span = int(codes.max(initial=0)) + 1
    column, columns = _ranked(pairs.question[rows] * span + codes)
    asked = columns // span
    local = column - np.searchsorted(asked, asked)[column]
    width = -(-(int(local.max(initial=0)) + 1) // 64) * 64
    table = np.zeros((len(pairs.question), width), dtype=bool)
    table[rows, local] = True
    words = np.packbits(table, axis=1).view(np.uint64).T.copy()
    sizes = np.bitwise_count(words).sum(axis=0, dtype=np.int64).astype(np.float64)
    shared = np.zeros(len(pairs.left))
    for word in words:
        shared += np.bitwise_count(_of(word, pairs.left) & _of(word, pairs.right))
    return shared, _of(sizes, pairs.left), _of(sizes, pairs.right)


def _ranked(values: NDArray[np.integer[Any]]) -> tuple[Indices, Indices]:
    """The rank of each number (from 0 up) among the distinct ones, and the distinct ones in order."""
    end = int(values.max(initial=0)) + 1
    if end > DENSE * len(values):
        distinct, rank = np.unique(values, return_inverse=True)
        return rank, distinct
    # No sorting: each number is an index into a list.
    there = np.bincount(values, minlength=1) > 0
    return (np.cumsum(there) - 1).take(values), np.flatnonzero(there)

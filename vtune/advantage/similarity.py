"""How alike two tool calls are: one function a tool type (Dong et al., appendix B.3).

A new tool type is one entry in `TOOL_TYPES`: which tools it has, what tells their calls apart, and a function
that compares many pairs of them at a time, in [0, 1], symmetric, and 1 for a call with itself.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vtune.schema.box import Box
from vtune.schema.trajectory import Call, Trajectory

Indices = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Which calls are to be compared; both of a pair are about the same question."""

    left: Indices
    """Number of a call, shape (P,)."""
    right: Indices
    """Number of the other, shape (P,)."""
    question: Indices
    """The question of each call, shape (N,)."""


@dataclass(frozen=True, slots=True)
class ToolType:
    """Calls that seek the same kind of information."""

    tools: tuple[str, ...]
    """Names of the tools, as in `Call.tool`."""
    argument: Callable[[Trajectory, Call], Any]
    """What tells calls apart; None where a call seeks nothing of this kind."""
    similarity: Callable[[Sequence[Any], Pairs], Values]
    """(arguments of the N calls, pairs) -> similarities, shape (P,)."""


Look = tuple[tuple[int | bytes | str, Box], ...]
"""The regions that a call showed: of which picture, and the box in its pixels."""

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
"""Words that are left out of queries before they are compared, ours: the paper says that there is a list."""

_WORD = re.compile(r"\w+")


def same(arguments: Sequence[Any], pairs: Pairs) -> Values:
    """1 for every pair: the tool has no parameters, and all calls about a question are one action."""
    return np.ones(len(pairs.left))


def overlap(arguments: Sequence[Look], pairs: Pairs) -> Values:
    """IoU of two crops; for calls with several, the mean over all their crops of the best IoU in the other.

    That mean is the IoU where both have one crop, does not depend on the order of crops, and is 1 only where
    each crop of either call is in the other too. Crops of different pictures do not overlap.
    """
    counts = np.array([len(look) for look in arguments], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    flat = [region for look in arguments for region in look]
    boxes = np.array([box for _, box in flat], dtype=np.float64).reshape(-1, 4)
    numbers: dict[int | bytes | str, int] = {}
    pictures = np.array([numbers.setdefault(picture, len(numbers)) for picture, _ in flat], dtype=np.int64)
    edges = boxes.T.copy()
    left, right = pairs.left, pairs.right
    single = (counts[left] == 1) & (counts[right] == 1)
    similarity = np.empty(len(left))
    similarity[single] = _iou(edges, pictures, starts[left[single]], starts[right[single]])

    def best(left: Indices, right: Indices) -> Values:
        """Sum over the crops of the left call of the best IoU with a crop of the right one."""
        pair, own = _expand(starts[left], counts[left])
        width = counts[right][pair]
        entry, other = _expand(starts[right][pair], width)
        found = _iou(edges, pictures, own[entry], other)
        highest = np.maximum.reduceat(found, np.cumsum(width) - width) if len(found) else found
        return np.bincount(pair, weights=highest, minlength=len(left)).astype(np.float64)

    left, right = left[~single], right[~single]
    similarity[~single] = (best(left, right) + best(right, left)) / (counts[left] + counts[right])
    return similarity


def wording(arguments: Sequence[str], pairs: Pairs) -> Values:
    """0.3 J + 0.5 OC + 0.2 BG of two queries (Dong et al., eq. 5).

    J and OC are the Jaccard and the overlap coefficient of the sets of words without stop words, BG the
    Jaccard coefficient of the sets of neighbouring characters. Queries are compared in Unicode's NFKC form,
    without case, with single spaces (ours). A query of stop words alone keeps them; one without a word counts
    as a single word, one of a single character as a single neighbourhood.
    """
    known: dict[tuple[int, str], int] = {}
    number = np.array(
        [known.setdefault(key, len(known)) for key in zip(pairs.question.tolist(), arguments, strict=True)],
        dtype=np.int64,
    )
    question = np.array([asked for asked, _ in known], dtype=np.int64)
    texts = [_plain(query) for _, query in known]
    left, right = number[pairs.left], number[pairs.right]
    words: dict[str, int] = {}
    terms = [_terms(text) for text in texts]
    rows = np.repeat(np.arange(len(texts)), [len(found) for found in terms])
    codes = [words.setdefault(word, len(words)) for word in chain.from_iterable(terms)]
    shared, first, second = _shared(rows, np.array(codes, dtype=np.int64), question, left, right)
    jaccard = shared / (first + second - shared)
    coefficient = shared / np.minimum(first, second)
    shared, first, second = _shared(*_bigrams(texts), question, left, right)
    return 0.3 * jaccard + 0.5 * coefficient + 0.2 * (shared / (first + second - shared))


def _no_argument(trajectory: Trajectory, call: Call) -> tuple[()]:
    return ()


def _look(trajectory: Trajectory, call: Call) -> Look | None:
    """Crops that come from the sample's pictures are known by their number, others by their bytes."""
    found = []
    for crop in call.crops:
        picture = trajectory.images[crop.image]
        key = crop.image if picture.origin == "input" else picture.data or picture.path or crop.image
        found.append((key, crop.bbox))
    return tuple(found) or None


def _query(trajectory: Trajectory, call: Call) -> str | None:
    """The model's own JSON: what cannot be read asks for nothing."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return None
    query = arguments.get("query") if isinstance(arguments, dict) else None
    return query if isinstance(query, str) and query.strip() else None


TOOL_TYPES: Mapping[str, ToolType] = {
    "image_search": ToolType(("image_search_tool",), _no_argument, same),
    "zoom": ToolType(("image_zoom_in_tool", "python"), _look, overlap),
    "text_search": ToolType(("text_search_tool",), _query, wording),
}
"""Code that crops (tool `python`) zooms: its boxes are in `Call.crops` as those of the zoom tool are."""


def _expand(starts: Indices, counts: Indices) -> tuple[Indices, Indices]:
    """Ranges [start, start + count), one after the other: the number of the range, and the value."""
    row = np.repeat(np.arange(len(counts)), counts)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts) + starts[row]


def _iou(edges: Values, pictures: Indices, left: Indices, right: Indices) -> Values:
    """Of pairs of boxes, whose x0, y0, x1, y1 are the rows of `edges`."""
    x0, y0, x1, y1 = edges
    areas = np.maximum(x1 - x0, 0) * np.maximum(y1 - y0, 0)
    wide = np.minimum(x1[left], x1[right]) - np.maximum(x0[left], x0[right])
    high = np.minimum(y1[left], y1[right]) - np.maximum(y0[left], y0[right])
    shared = np.maximum(wide, 0) * np.maximum(high, 0) * (pictures[left] == pictures[right])
    union = areas[left] + areas[right] - shared
    ratio: Values = np.divide(shared, union, out=np.zeros(len(left)), where=union > 0)
    return ratio


def _plain(query: str) -> str:
    # What is ASCII is in NFKC, and has no case but upper and lower.
    folded = query.lower() if query.isascii() else unicodedata.normalize("NFKC", query).casefold()
    return " ".join(folded.split())


def _terms(text: str) -> set[str] | frozenset[str]:
    found = set(_WORD.findall(text))
    return found - STOP_WORDS or found or {text}


def _bigrams(texts: Sequence[str]) -> tuple[Indices, Indices]:
    """(text, code of a pair of neighbouring characters) of every place; a lone character is its own pair."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(
        np.int64
    )
    rows = np.repeat(np.arange(len(texts)), lengths)
    last = np.cumsum(lengths) - 1
    followed = np.append(codes[1:], 0)
    followed[last] = 0
    kept = np.ones(len(codes), dtype=bool)
    kept[last] = lengths == 1
    return rows[kept], (codes[kept] << 21) | followed[kept]


def _shared(
    rows: Indices, codes: Indices, question: Indices, left: Indices, right: Indices
) -> tuple[Values, Values, Values]:
    """Sizes of the intersection, of the left and of the right set, for each pair.

    Row `rows[k]` holds `codes[k]`. Each question has columns of its own, one bit each, so sets are as wide
    as the questions' vocabularies, not as that of all of them.
    """
    order, code = np.unique(codes, return_inverse=True)
    columns, column = np.unique(question[rows] * len(order) + code, return_inverse=True)
    asked = columns // max(len(order), 1)
    local = column - np.searchsorted(asked, asked)[column]
    width = -(-(int(local.max(initial=0)) + 1) // 64) * 64
    table = np.zeros((len(question), width), dtype=bool)
    table[rows, local] = True
    words = np.packbits(table, axis=1).view(np.uint64).T.copy()
    sizes = np.bitwise_count(words).sum(axis=0, dtype=np.int64)
    shared = np.zeros(len(left), dtype=np.int64)
    for word in words:
        shared += np.bitwise_count(word[left] & word[right])
    return shared.astype(np.float64), sizes[left].astype(np.float64), sizes[right].astype(np.float64)

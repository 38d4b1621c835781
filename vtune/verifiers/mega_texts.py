"""MEGA-Bench's metrics for texts and numbers: (answer, truth) -> score.

Source: TIGER-AI-Lab/MEGA-Bench ee324ab, `megabench/metrics/scoring`; each names its class there. An answer is
text, or any JSON value. If an answer's form makes upstream fail, it scores 0; here that raises one of
`mega_metrics.FAILURES`.
"""

import math
import re
import unicodedata
from collections.abc import Hashable, Sequence
from numbers import Number
from types import MappingProxyType
from typing import Any

import numpy as np

from vtune.verifiers.latex import value_of
from vtune.verifiers.mega_parsing import drawn_in, literal
from vtune.verifiers.mega_values import items_of

NEAR = 0.9
"""Similarity from which `near_str_match` counts."""
UNEVEN = 50
"""Maximum ratio of two texts' lengths, ours: beyond it their similarity is below 1/50, and counts as 0."""
CLOSE = 0.01
"""Relative error of a numerical match."""
LARGEST_ERROR = 0.1
"""Error from which `normalized_rmse` is 0."""

_LETTER = re.compile(r"\(?([A-Za-z])")
_GONE = str.maketrans("", "", " -\n\t.")
_BOXED = re.compile(r"\\boxed\{((?:[^{}]++|\{[^{}]*+\})*+)\}")
_INLINE, _DISPLAY = re.compile(r"\\\((.*?)\\\)"), re.compile(r"\\\[(.*?)\\\]")
_ASSIGNED = re.compile(r"(?:=|≈|\\approx)\s*(.+)")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_DECIMAL_COMMA = re.compile(r"([-+]?\d+),.*", re.DOTALL)
_PI = (
    (re.compile(r"(?<![\d}])\\?π"), "3.14"),
    (re.compile(r"(\d)(\\?π)"), r"\1*3.14"),
    (re.compile(r"\{(\\?π)\}"), "3.14"),
    (re.compile(r"\*(\\?π)"), "*3.14"),
)
_UNITS = (("%", "/100"), ("$", ""), ("¥", ""), ("°C", ""), (" C", ""), ("°", ""))

SPELLED = MappingProxyType(
    {
        **{"ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "đ": "d", "Đ": "D"},
        **{"ł": "l", "Ł": "L", "ı": "i", "ð": "d", "Ð": "D", "þ": "th", "Þ": "Th", "ħ": "h", "Ħ": "H"},
        **{
            "‘": "'",
            "’": "'",
            "‚": ",",
            "“": '"',
            "”": '"',
            "„": ",,",
            "–": "-",
            "—": "--",
            "…": "...",
            "•": "*",
        },
        **{"\xa0": " ", "×": "x", "÷": "/", "°": "deg", "«": "<<", "»": ">>", "¿": "?", "¡": "!", "ŉ": "'n"},
    }
)
"""Letters and marks without a removable accent, spelled as by Unidecode."""


def exact(answer: Any, truth: Any) -> float:
    """The same text; for a single-letter truth, the letter that begins the answer (`ExactStrMatch`)."""
    answer, truth = str(answer), str(truth)
    if len(truth) == 1 and truth.isalpha() and len(answer) > 1 and (found := _LETTER.match(answer)):
        answer = found[1]
    return float(answer == truth)


def exact_uncased(answer: Any, truth: Any) -> float:
    """The same, ignoring case; both must be texts (`ExactStrMatchCaseInsensitive`)."""
    return exact(answer.lower(), truth.lower())


def exact_of_code(answer: Any, truth: Any) -> float:
    """The same text as the content of the truth's fence (`CodeResultExactStrMatch`)."""
    return exact(answer, drawn_in(truth, keep_space=True))


def simple(answer: Any, truth: Any) -> float:
    """The same, ignoring spaces, hyphens, full stops and case (`SimpleStrMatch`)."""
    return exact(str(answer).translate(_GONE).lower(), truth.translate(_GONE).lower())


def any_reference(answer: Any, truth: Any) -> float:
    """`simple` with any truth in a list (`MultipleReferencePhraseEval`)."""
    references = items_of(truth.replace("，", ","))
    return float(any(simple(answer, str(reference)) for reference in references))


def similar(answer: Any, truth: Any) -> float:
    """1 - Damerau-Levenshtein distance / length of the longer (`NormalizedSimilarityDamerauLevenshtein`).

    If the truth is a list, computed over its items, as in upstream's library.
    """
    if not isinstance(answer, str | list) or not isinstance(truth, str | list):
        return 0.0
    if isinstance(answer, list) and isinstance(truth, str):
        return 0.0
    shorter, longer = sorted((len(answer), len(truth)))
    if longer > UNEVEN * shorter:
        return 0.0
    return 1 - edits(answer, truth) / longer if longer else 1.0


def near(answer: Any, truth: Any) -> float:
    """The same similarity, or 0 below 0.9, ignoring articles, accents and case (`NearStrMatch`)."""
    if not isinstance(answer, str) or not isinstance(truth, str):
        return 0.0
    one, other = plain(answer), plain(truth)
    shorter, longer = sorted((len(one), len(other)))
    if shorter < NEAR * longer:
        return 0.0
    value = similar(one, other)
    return value if value >= NEAR else 0.0


def plain(text: str) -> str:
    """A text without articles, in lower case, Latin letters without accents.

    Upstream also transliterates other scripts, by the tables of Unidecode; here they stay unchanged.
    """
    kept = " ".join(word for word in text.split(" ") if word.lower() not in ("the", "a"))
    spelled = "".join(SPELLED.get(char, char) for char in kept)
    marked = unicodedata.normalize("NFKD", spelled)
    return "".join(char for char in marked if not unicodedata.combining(char)).lower()


def edits(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Unrestricted Damerau-Levenshtein distance: two letters may be transposed around other edits.

    Computes a row of distances at a time, in time proportional to the product of the lengths. In a
    transposition, one of the two pairs is adjacent (Zhao and Sahni, 2019, "String correction using the
    Damerau-Levenshtein distance"), so two kinds of crossing suffice.
    """
    one, other = sorted(_without_ends(one, other), key=len)
    codes: dict[Hashable, int] = {}
    rows, columns = ([codes.setdefault(item, len(codes)) for item in text] for text in (one, other))
    across, places = np.array(columns, dtype=np.int64), np.arange(len(columns) + 1)
    before, above = places, places
    crossing = np.full(len(columns), len(columns) * 2)  # distance before a column's last match - its row
    for i, code in enumerate(rows, start=1):
        match = across == code
        best = np.minimum(above[:-1] + ~match, above[1:] + 1)
        beside = ~match & np.concatenate(([False], match[:-1]))
        best[beside] = np.minimum(best[beside], crossing[beside] + i)
        last = np.maximum.accumulate(np.where(match, places[1:], 0))
        below = ~match & (last > 0) & (across == rows[i - 2] if i > 1 else False)
        best[below] = np.minimum(best[below], before[last[below] - 1] + places[1:][below] - last[below])
        inner = np.flatnonzero(match[1:]) + 1
        crossing[inner] = above[inner - 1] - i
        row = np.minimum.accumulate(np.concatenate(([i], best)) - places) + places
        before, above = above, row
    return int(above[-1])


def _without_ends(
    one: Sequence[Hashable], other: Sequence[Hashable]
) -> tuple[Sequence[Hashable], Sequence[Hashable]]:
    """Both without their common prefix and suffix."""
    shorter = min(len(one), len(other))
    start = next((at for at in range(shorter) if one[at] != other[at]), shorter)
    one, other = one[start:], other[start:]
    shorter = min(len(one), len(other))
    end = next((at for at in range(shorter) if one[-1 - at] != other[-1 - at]), shorter)
    return one[: len(one) - end], other[: len(other) - end]


def relative(answer: Any, truth: Any) -> float:
    """1 - the relative error, at least 0 (`NumberRelDiffRatio`)."""
    number = answer if isinstance(answer, Number) else literal(answer)
    expected = literal(truth)
    return max(0.0, 1 - math.fabs((number - expected) / expected)) if isinstance(number, Number) else 0.0


def positive(answer: Any, truth: Any) -> float:
    """The same whole number; -1, which drops the field, if none is positive (`PositiveIntMatch`)."""
    number, expected = literal(answer), literal(truth)
    if not isinstance(number, int) or not isinstance(expected, int):
        return 0.0
    return -1.0 if expected <= 0 and number <= 0 else float(number == expected)


def near_number(answer: Any, truth: Any) -> float:
    """1 - the error / 0.1, at least 0 (`NormalizedRMSE`)."""
    error = float(abs(literal(answer) - literal(truth)))
    return 1 - min(error, LARGEST_ERROR) / LARGEST_ERROR


def numerical(answer: Any, truth: Any) -> float:
    """Equal within a hundredth, or according to `simple` (`GeneralSingleNumericalMatch`).

    Lists of numbers are compared regardless of order; tuples, and lists of anything else, are never right.
    Upstream parses LaTeX with sympy and evaluates the result with `eval`; here `latex.value_of` computes it.
    """
    said, expected = _assigned(str(answer)), _assigned(truth)
    one, other = _number(said), _number(expected)
    if one is None or other is None:
        return simple(said, expected)
    if isinstance(one, list) and isinstance(other, list):
        numbers = all(isinstance(item, int | float) for item in (*one, *other))
        return float(numbers and len(one) == len(other) and all(map(_close, sorted(one), sorted(other))))
    return float(isinstance(one, float) and isinstance(other, float) and _close(one, other))


def boxed_numerical(answer: Any, truth: Any) -> float:
    r"""The same of the content of the first `\boxed{}` (`BoxedSingleNumericalMatch`)."""
    said, expected = str(answer), truth
    boxes = [_BOXED.search(text) for text in (said, expected)]
    return numerical(boxes[0][1] if boxes[0] else said, boxes[1][1] if boxes[1] else expected)


def _assigned(text: str) -> str:
    """Without LaTeX delimiters, and only the part after the first equals sign."""
    text = _DISPLAY.sub(r"\1", _INLINE.sub(r"\1", text))
    found = _ASSIGNED.search(text)
    return found[1].strip() if found else text


def _number(text: str) -> float | list[Any] | tuple[Any, ...] | None:
    """The value of an expression, or a list or tuple; None if it is neither."""
    text = text.replace("\\pi", "π")
    for pattern, written in _PI:
        text = pattern.sub(written, text)
    for unit, written in _UNITS:
        text = text.replace(unit, written)
    if "\\sqrt" in text:
        return None  # upstream's parser keeps a root unchanged, and Python knows no name `sqrt`
    value = value_of(_THOUSANDS.sub("", text))
    if value is not None:
        return value
    if whole := _DECIMAL_COMMA.fullmatch(text.strip()):
        return float(whole[1])  # upstream's parser stops at the comma
    try:
        found = literal(text)
    except (ValueError, TypeError):
        return None
    if isinstance(found, tuple):
        return found
    return found if isinstance(found, list) else None


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= abs(other) * CLOSE

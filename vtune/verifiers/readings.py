"""OCRBench v2's short metrics: (answer, truths) -> score in [0, 1].

Source: Yuliang-Liu/MultimodalOCR 794c36d, `OCRBench_v2/eval_scripts` (`eval.py`, `vqa_metric.py`,
`IoUscore_metric.py`, `TEDS_metric.py` for key information). Nothing that a model wrote is executed.
"""

import ast
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from vtune.verifiers.ocr import ANLS_FROM, similarity

SHORT_WORDS, SHORT_PARTS = 5, 4
"""A truth with fewer words (in Chinese: fewer comma-separated parts) must be contained in the answer."""
SIDE = 1000
"""Largest coordinate."""
JOINTS = ("", ".", ". ", ",", ", ", "、", ";", "; ", " ", "和")
"""Possible separators between the letters of a handwritten answer."""
_FENCE, _FENCE_END = re.compile(r"```(?:python|json)?\n", re.IGNORECASE), "\n```"
_PAIR = re.compile(r"[\"']?([\w\s]++)[\"']?\s*+[:=]\s*[\"']?([^\n,\"'{}]+)[\"']?")
_BOX = re.compile(r"[(\[]\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*[)\]]")
_DIGITS = re.compile(r"\d+")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")

Fields = Mapping[str, str]


def letters(answer: str, truths: Sequence[str]) -> float:
    """The letters of the answer, ignoring everything else, are the truth."""
    return float("".join(filter(str.isalpha, answer)) == truths[0])


def contains(answer: str, truths: Sequence[str]) -> float:
    """The best over truths, ignoring case: a short one must be contained, a long one similar (ANLS)."""
    return _best(_flat(answer).lower(), [_flat(truth).lower() for truth in truths], _is_short)


def contains_cased(answer: str, truths: Sequence[str]) -> float:
    """The same, but case-sensitive."""
    return _best(_flat(answer), [_flat(truth) for truth in truths], _is_short)


def contains_chinese(answer: str, truths: Sequence[str]) -> float:
    """The same without spaces, ignoring case; a truth with fewer than four comma-separated parts is short."""

    def short(truth: str) -> bool:
        return len(truth.split(",")) < SHORT_PARTS

    return _best(_bare(answer).lower(), [_bare(truth).lower() for truth in truths], short)


def handwritten(answer: str, truths: Sequence[str]) -> float:
    """The truth's letters are contained, joined by one of ten separators."""
    return float(any(joint.join(truths[0]) in answer for joint in JOINTS))


def count_exact(answer: str, truths: Sequence[str]) -> float:
    """The digits of a truth are contained: 12 is right for 2."""
    return float(any(_flat(truth).lower() in answer for truth in truths))


SHORT_NUMBER = 20
"""In digits; a longer number is not close to anything."""


def count_near(answer: str, truths: Sequence[str]) -> float:
    """1 - the relative error of the first number if that is above 0.5, else 0."""
    found = _DIGITS.search(answer)
    number = int(found[0]) if found and len(found[0]) < SHORT_NUMBER else 0
    near = [1 - abs(number - int(truth)) / int(truth) for truth in truths] if number else []
    return max((value for value in near if value > ANLS_FROM), default=0.0)


def formula(answer: str, truths: Sequence[str]) -> float:
    r"""A truth is contained, ignoring spaces."""
    return float(any(_bare(truth) in _bare(answer) for truth in truths))


def formula_chinese(answer: str, truths: Sequence[str]) -> float:
    r"""The same, with each `\text{}` replaced by its content."""
    return formula(_TEXT.sub(r"\1", answer), [_TEXT.sub(r"\1", truth) for truth in truths])


def box_overlap(answer: str, truth: Sequence[float]) -> float:
    """IoU of the last box of whole numbers from 0 to 1000; areas are products of differences."""
    found = last_box(answer)
    return 0.0 if found is None else overlap(found, truth)


def last_box(text: str) -> list[int] | None:
    """The last `[x0, y0, x1, y1]` or `(…)` of whole numbers from 0 to 1000."""
    boxes = [
        [int(side) for side in match.groups()] for match in _BOX.finditer(text) if _sides_are_short(match)
    ]
    inside = [box for box in boxes if max(box) <= SIDE]
    return inside[-1] if inside else None


def overlap(one: Sequence[float], other: Sequence[float]) -> float:
    """IoU of two boxes in whole numbers, limited to [0, 1]; upstream returns any value for odd boxes."""
    a, b = [int(side) for side in one], [int(side) for side in other]
    shared = max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return min(max(shared / union, 0.0), 1.0) if union else 0.0


def answer_and_box(answer: str, truths: Sequence[str], truth: Sequence[float]) -> float:
    """For an object: half for `answer` according to `contains`, half for the overlap of `bbox`."""
    found = fields_in(answer)
    said = contains(found["answer"], truths) if "answer" in found else 0.0
    sides = _whole(_literal(found.get("bbox", "")))
    return (said + (overlap(sides, truth) if sides else 0.0)) / 2


def _whole(value: Any) -> list[int]:
    """The first four of some numbers, or texts that are numbers, as integers; empty if there are fewer."""
    try:
        sides = [int(side) for side in value] if isinstance(value, list | tuple) else []
    except (ValueError, TypeError, OverflowError):
        return []
    return sides[:4] if len(sides) >= 4 and max(map(abs, sides)) < 1e9 else []


def field_share(answer: str, truths: Mapping[str, Sequence[str]]) -> float:
    """The share of the keys, on either side, whose values agree; the best over alternatives.

    Upstream takes the best over all combinations of alternatives, which equals the best for each key.
    """
    found = fields_in(answer)
    keys = found.keys() | truths.keys()
    right = (key in found and _plain(found[key]) in map(_plain, truths.get(key, ())) for key in keys)
    return sum(right) / len(keys) if keys else 0.0


def fields_in(text: str) -> Fields:
    """The object in a text, in JSON or Python syntax, else its pairs `key: value`; in a code fence or not."""
    opened = _FENCE.search(text)
    end = text.find(_FENCE_END, opened.end()) if opened else -1
    content = text[opened.end() : end] if opened and end >= 0 else text.strip()
    value = _parsed(content)
    if value is _NOTHING:
        value = {key.strip(): said.strip() for key, said in _PAIR.findall(content[:LONGEST])}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        return {}
    return {key.strip(): str(said).strip() for key, said in value.items()}


LONGEST = 4000
"""Limit on the characters in which pairs and literals are looked for; ours: the pattern could be slow."""
_NOTHING = object()


def _parsed(content: str) -> Any:
    """The value of a text; `_NOTHING` if it has none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return _literal(content)


def _literal(text: str) -> Any:
    """A Python literal; `_NOTHING` if the text is not one. Nothing is executed."""
    try:
        with warnings.catch_warnings(action="ignore"):  # Python warns about odd escapes
            return ast.literal_eval(text) if len(text) <= LONGEST else _NOTHING
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return _NOTHING


def _best(answer: str, truths: Sequence[str], short: Callable[[str], bool]) -> float:
    return max(float(truth in answer) if short(truth) else _anls(answer, truth) for truth in truths)


def _is_short(truth: str) -> bool:
    return len(truth.split()) < SHORT_WORDS


def _anls(answer: str, truth: str) -> float:
    """The similarity, or 0 below 0.5."""
    longer = max(len(answer), len(truth))
    if not longer or min(len(answer), len(truth)) / longer < ANLS_FROM:
        return float(not longer)  # so much is missing that the similarity cannot reach the limit
    value = similarity(answer, truth)
    return value if value >= ANLS_FROM else 0.0


def _flat(text: str) -> str:
    return text.strip().replace("\n", " ")


def _bare(text: str) -> str:
    return _flat(text).replace(" ", "")


def _plain(text: str) -> str:
    return _bare(text.lower())


def _sides_are_short(match: re.Match[str]) -> bool:
    return all(len(side) < SHORT_NUMBER for side in match.groups())


OF_TEXT: Mapping[str, Callable[[str, Sequence[str]], float]] = MappingProxyType(
    {
        one.__name__: one
        for one in (
            letters,
            contains,
            contains_cased,
            contains_chinese,
            handwritten,
            count_exact,
            count_near,
            formula,
            formula_chinese,
        )
    }
)
"""Name -> metric of an answer against texts."""

"""Values in MEGA-Bench's answers: lists, sets, objects, boxes and points written as text.

Source: TIGER-AI-Lab/MEGA-Bench ee324ab, `megabench/metrics/scoring/common/conversions.py`. A value of another
form than required becomes empty, or raises an error listed in `mega_metrics.FAILURES`.
"""

import json
import re
from collections.abc import Sequence
from numbers import Number
from typing import Any

from vtune.verifiers.mega_parsing import json_in, literal

_POINT = re.compile(r"<point>(.*?)</point>")
_BOX = re.compile(r"<box>(.*?)</box>")
_ENDS = {"(": ")", "{": "}", "[": "]"}


def items_of(text: Any) -> Sequence[Any]:
    """The items of a list given as text; none if it already is a list (`str_to_iterable`).

    If there are no brackets, or Python cannot read a value, items are separated by commas.
    """
    if not isinstance(text, str) or not (text := text.strip(" ")):
        return []
    end = _ENDS.get(text[0])
    if end and not text.endswith(end):
        return []
    try:
        found = literal(text)
    except ValueError:
        content = text[1:-1] if end else text
        return [item.strip() for item in content.split(",")]
    except TypeError:
        return []
    if found is None:
        return ""
    if isinstance(found, int | float):
        return [found]
    return [] if isinstance(found, complex) or found is Ellipsis else list(found)


def set_of_text(text: Any) -> Any:
    """The same as a set (`str_to_set`): empty if an item is unhashable.

    `None` becomes an empty text, which differs from an empty set.
    """
    items = items_of(text)
    if items == "":
        return ""
    try:
        return set(items)
    except TypeError:
        return set()


def set_of(value: Any) -> Any:
    """A list, an object or a text as a set (`cast_to_set`)."""
    frozen = _frozen(value)
    return set(frozen) if isinstance(frozen, frozenset | tuple) else set_of_text(frozen)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return frozenset((key, _frozen(one)) for key, one in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    return frozenset(value) if isinstance(value, set) else value


def object_of(value: Any) -> Any:
    """An object, even if given as JSON text; any other value unchanged (`cast_to_dict`)."""
    if isinstance(value, dict):
        return {key: object_of(one) for key, one in value.items()}
    return (json_in(value) or value) if isinstance(value, str) else value


def boxes_of(text: Any) -> list[Any]:
    """The boxes of a list, or the one that it is; items that are not boxes are dropped (`str_to_bboxes`)."""
    if not isinstance(text, str):
        return []
    try:
        found = literal(text)
    except ValueError:
        try:
            found = json.loads(text)
        except ValueError:
            return []
    if len(found) == 4 and isinstance(found[0], Number):
        found = [found]
    return _of_numbers(found, 4) if isinstance(found, list | tuple) else []


def points_of(text: Any) -> list[Any]:
    """The points (x, y) of a list (`str_to_coords`)."""
    return _of_numbers(literal(text), 2) if isinstance(text, str) else []


def _of_numbers(found: Any, length: int) -> list[Any]:
    listed = [one for one in found if isinstance(one, list | tuple) and len(one) == length]
    return [one for one in listed if all(isinstance(side, int | float) for side in one)]


def tagged_boxes(text: Any) -> list[tuple[float, ...]]:
    """The boxes `<box>x0, y0, x1, y1</box>` of a text (`parse_bboxes_from_xml`)."""
    found = _BOX.findall(text) if isinstance(text, str) else []
    numbers = [_numbers(content) for content in found]
    return [box for box in numbers if len(box) == 4]


def tagged_point(text: Any) -> tuple[float, ...] | None:
    """The only `<point>x, y</point>` of a text (`parse_point_2d_from_xml`)."""
    found = _POINT.findall(text) if isinstance(text, str) else []
    point = _numbers(found[0]) if len(found) == 1 else ()
    return point if len(point) == 2 else None


def _numbers(content: str) -> tuple[float, ...]:
    """Comma-separated numbers; empty if one is not a number."""
    try:
        return tuple(float(part.strip()) for part in content.split(","))
    except ValueError:
        return ()


def overlaps(predicted: Sequence[Any], targets: Sequence[Any]) -> list[float]:
    """For each predicted box the best IoU with a target; areas are plain products (`calculate_iou`)."""
    return [max([0.0, *(_overlap(box, target) for target in targets)]) for box in predicted]


def _overlap(one: Sequence[Any], other: Sequence[Any]) -> float:
    across = max(0, min(one[2], other[2]) - max(one[0], other[0]))
    down = max(0, min(one[3], other[3]) - max(one[1], other[1]))
    shared = across * down
    union = (one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1]) - shared
    return shared / union if union > 0 else 0.0


def share(found: Any, truth: Any, of: Any) -> float:
    """Size of the intersection / size of `of`; 1 if that is empty (`set_relevance_score`)."""
    return len(set(found) & set(truth)) / len(of) if of else 1.0

"""Boxes as datasets store them: the region that a question is about, and boxes as ground truth."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from vtune.data.formats.values import picture_size
from vtune.files.json_text import parse_json
from vtune.schema.fields import Row, mistyped, wrong
from vtune.schema.message import Picture
from vtune.sections import Strict

ENTRY = ("label", "image", "bbox_2d")
"""Keys of an entry of `evidence`."""


class BoxColumn(Strict):
    """The column with the boxes of a question's target."""

    column: str
    corners: Literal["xyxy", "xywh"] = "xyxy"
    """Meaning of the four numbers: two corners, or (COCO) the upper left corner, width and height."""
    space: Literal["pixels", "relative_1000", "relative_1"] = "pixels"
    """Pixels of the stored picture, or thousandths or fractions of its sides."""


def evidence_rows(spec: BoxColumn, value: Any, shown: Sequence[Picture]) -> list[Row]:
    """Rows of `evidence`, xyxy in pixels of the stored picture.

    Args:
        spec: What the numbers mean.
        value: A box of four numbers, an entry {label, image, bbox_2d}, a list of either, or any of these as
            JSON text; null, an empty text and an empty list mean no box. `image` defaults to the first
            picture.
        shown: The pictures of the question, with their bytes.

    Raises:
        DataError: If it is not one of these, or refers to a missing picture.
    """
    found = []
    for entry in _entries(spec.column, value):
        unknown = next((name for name in entry if name not in ENTRY), None)
        if unknown is not None:
            raise wrong(spec.column, f"a box has the unknown member {unknown!r}", f"write {', '.join(ENTRY)}")
        number = entry.get("image") or 0
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(shown):
            raise wrong(
                spec.column, f"a box is in picture {number!r} of {len(shown)}", "count pictures from 0"
            )
        box = _pixels(spec, box_of_numbers(spec.column, entry.get("bbox_2d")), shown[number])
        found.append({"label": str(entry.get("label") or ""), "image": number, "bbox_2d": box})
    return found


def box_truth(column: str, value: Any) -> str:
    """Ground-truth boxes in the form that verifiers read: JSON of `[{"label": …, "bbox_2d": […]}]`.

    Args:
        column: Its name, for errors.
        value: As for `evidence_rows`; xyxy in the space that `verifier_parm` names.

    Raises:
        DataError: If it is not a list of boxes.
    """
    entries = [
        {"label": str(entry.get("label") or ""), "bbox_2d": box_of_numbers(column, entry.get("bbox_2d"))}
        for entry in _entries(column, value)
    ]
    return json.dumps(entries, ensure_ascii=False)


def _entries(column: str, value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, str):
        try:
            value = parse_json(value) if value.strip() else None
        except ValueError:
            raise wrong(
                column, f"no box: {value[:60]!r}", "write [x0, y0, x1, y1], or a list of them"
            ) from None
    if value is None:
        return []
    if isinstance(value, Mapping) or (isinstance(value, list) and value and not _nested(value[0])):
        value = [value]
    if not isinstance(value, list):
        raise mistyped(column, value, "a box [x0, y0, x1, y1], or a list of them")
    return [entry if isinstance(entry, Mapping) else {"bbox_2d": entry} for entry in value]


def _nested(value: Any) -> bool:
    return isinstance(value, Mapping | list)


def box_of_numbers(column: str, sides: Any) -> list[float]:
    """Four finite numbers.

    Raises:
        DataError: If it is something else.
    """
    numbers = isinstance(sides, list) and all(
        isinstance(side, int | float) and not isinstance(side, bool) and math.isfinite(side) for side in sides
    )
    if not numbers or len(sides) != 4:
        raise mistyped(column, sides, "a box of four finite numbers")
    return list(sides)


def _pixels(spec: BoxColumn, box: Sequence[float], picture: Picture) -> list[float]:
    x0, y0, x1, y1 = map(float, box)
    if spec.corners == "xywh":
        x1, y1 = x0 + x1, y0 + y1
    if spec.space == "pixels":
        return [x0, y0, x1, y1]
    full = 1000.0 if spec.space == "relative_1000" else 1.0
    width, height = picture_size(picture)
    return [x0 * width / full, y0 * height / full, x1 * width / full, y1 * height / full]

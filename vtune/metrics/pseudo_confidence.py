"""A substitute for box confidence: models that write their boxes as text do not give one.

Source: V-Triune, appendix E and table 5, which names five. It gives a formula only for `area_ratio`; those of
`center_bias` and `aspect_ratio` are ours. `order` follows its appendix D.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from vtune.schema.box import Box, area

DEFAULT = "area_ratio"
"""V-Triune's choice for all of its tables."""

Size = tuple[int, int]
"""(width, height) of the stored picture."""


def area_ratio(boxes: Sequence[Box], size: Size, key: str) -> list[float]:
    """Area of the box as a share of the picture, including the part beyond its borders."""
    return [area(box) / (size[0] * size[1]) for box in boxes]


def center_bias(boxes: Sequence[Box], size: Size, key: str) -> list[float]:
    """1 in the middle of the picture, 0 in its corners, by the distance of the box's centre; ours."""
    width, height = size
    far = math.hypot(width / 2, height / 2)
    return [
        1 - math.hypot((x0 + x1) / 2 - width / 2, (y0 + y1) / 2 - height / 2) / far
        for x0, y0, x1, y1 in boxes
    ]


def aspect_ratio(boxes: Sequence[Box], size: Size, key: str) -> list[float]:
    """The shorter side divided by the longer one: 1 for a square; 0 for an empty box. Ours."""
    sides = [(max(x1 - x0, 0.0), max(y1 - y0, 0.0)) for x0, y0, x1, y1 in boxes]
    return [min(pair) / max(pair) if max(pair) > 0 else 0.0 for pair in sides]


def fixed(boxes: Sequence[Box], size: Size, key: str) -> list[float]:
    """1 for all: ties are broken by the order of pictures, then of boxes in the reply, as in pycocotools."""
    return [1.0] * len(boxes)


def at_random(boxes: Sequence[Box], size: Size, key: str) -> list[float]:
    """Uniform in [0, 1), the same for the same key."""
    rng = random.Random(key)
    return [rng.random() for _ in boxes]


def order(boxes: Sequence[Box], size: Size, key: str) -> list[float]:
    """1, 1/2, 1/3 …: the first box is the most confident (V-Triune, appendix D; the numbers are ours)."""
    return [1 / number for number in range(1, len(boxes) + 1)]


CONFIDENCES: Mapping[str, Callable[[Sequence[Box], Size, str], list[float]]] = MappingProxyType(
    {
        "area_ratio": area_ratio,
        "center_bias": center_bias,
        "aspect_ratio": aspect_ratio,
        "fixed": fixed,
        "random": at_random,
        "order": order,
    }
)
"""Name -> (boxes of a reply in order, xyxy in pixels; size of the picture; key for random numbers) -> a
number for each box, larger means more confident."""

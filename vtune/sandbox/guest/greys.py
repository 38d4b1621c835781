"""Grey levels of pictures: an input at several sizes, and how alike two pictures of one size are."""

import math
from typing import Any

import cv2
import numpy as np

from .maps import Box, Size

MIN_DETAIL = 0.6
"""Minimum correlation of two pictures after their shading is removed."""
LOOK = 96
"""Longer side, in pixels, at which a place is confirmed."""


class Source:
    """The grey levels of an input image, with cached reductions."""

    def __init__(self, grey: Any) -> None:
        self.grey = grey
        self._levels = [grey]
        self.size: Size = (grey.shape[1], grey.shape[0])

    def level(self, number: int) -> Any:
        """The image halved `number` times."""
        while len(self._levels) <= number:
            self._levels.append(half(self._levels[-1]))
        return self._levels[number]

    def cut(self, box: Box, size: Size) -> Any:
        """The part in a box, resized; the box is rounded to pixels of the level that is fine enough."""
        wide, high = box[2] - box[0], box[3] - box[1]
        number = max(0, int(math.log2(max(1.0, min(wide / size[0], high / size[1])))))
        level = self.level(number)
        fx, fy = level.shape[1] / self.size[0], level.shape[0] / self.size[1]
        x0, y0 = round(box[0] * fx), round(box[1] * fy)
        part = level[y0 : max(y0 + 1, round(box[3] * fy)), x0 : max(x0 + 1, round(box[2] * fx))]
        return cv2.resize(part, size, interpolation=cv2.INTER_AREA)


def shrunk(picture: Any, side: int) -> Any:
    """Reduced if its longer side has more than `side` pixels."""
    scale = side / max(picture.shape)
    if scale >= 1:
        return picture
    size = (max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale)))
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA)


def half(picture: Any) -> Any:
    """Both sides halved, to at least one pixel."""
    size: Size = (max(1, picture.shape[1] // 2), max(1, picture.shape[0] // 2))
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA)


def correlation_of(a: Any, b: Any) -> float:
    """Correlation of two pictures of the same size; also 1 for a picture and its negative."""
    x, y = a.astype(np.float32).ravel(), b.astype(np.float32).ravel()
    x, y = x - x.mean(), y - y.mean()
    length = math.sqrt(float(x @ x) * float(y @ y))
    return abs(float(x @ y)) / length if length > 1 else 0.0


def same_detail(a: Any, b: Any) -> bool:
    """Whether two pictures agree in more than their shading, which skies and walls have in common."""
    fine = [picture - cv2.blur(picture, (9, 9)) for picture in (a.astype(np.float32), b.astype(np.float32))]
    return correlation_of(*fine) >= MIN_DETAIL

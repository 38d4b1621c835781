"""A returned picture as the policy sees it, and parts of pictures on a common grid."""

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vtune.looks.geometry import Map, around, corners, moved, scaled
from vtune.schema.decoded import Pixels

SHRUNK = 1.3
"""Pixels of a picture per pixel of the grid above which it is shrunk first, so that no pixel is skipped."""
LONGEST = 8192
"""Limit on a side given to OpenCV for warping, in pixels; its own limit is 32766."""
EDGE = 4
"""Pixels around a part that a resize needs."""


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A returned picture, and the size at which the policy sees it."""

    pixels: Pixels
    """As returned, RGB."""
    seen: tuple[int, int]
    """Width and height that the policy's processor gives it."""
    small: Pixels | None = None
    """The picture shrunk to that size, if available: shared by all claims about the picture."""

    @property
    def scale(self) -> tuple[float, float]:
        """Seen pixels per returned pixel, across and down."""
        height, width = self.pixels.shape[:2]
        return self.seen[0] / width, self.seen[1] / height

    def part(self, way: Map, size: tuple[int, int]) -> Pixels:
        """A part of what the policy sees, on a grid.

        A processor that enlarges adds nothing, so only shrinking is repeated, in the same way as Qwen2-VL.

        Args:
            way: From the grid to pixels of the returned picture.
            size: Width and height of the grid.
        """
        if min(self.scale) >= 1:
            return sampled(self.pixels, way, size)
        small = self.small if self.small is not None else shrunk(self.pixels, self.seen)
        high, wide = small.shape[:2]
        way = scaled(wide / self.pixels.shape[1], high / self.pixels.shape[0]) @ way
        return sampled(small, way, size)


def shrunk(pixels: Pixels, seen: tuple[int, int]) -> Pixels:
    """A picture at the size at which the policy sees it, but no side enlarged: shrunk as Qwen2-VL does it."""
    height, width = pixels.shape[:2]
    size = min(seen[0], width), min(seen[1], height)
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC))


def sampled(pixels: Pixels, way: Map, size: tuple[int, int]) -> Pixels:
    """A part of a picture on a grid, averaged if the grid is coarser; outside, its edge pixels are repeated.

    Args:
        pixels: The picture, shape (h, w, 3).
        way: From the grid to pixels of the picture.
        size: Width and height of the grid.
    """
    box = _needed(way, size, (pixels.shape[1], pixels.shape[0]))
    if box is None:
        return np.full((size[1], size[0], 3), 127, np.uint8)
    left, top, right, bottom = box
    part = pixels[top:bottom, left:right]
    way = moved(-left, -top) @ way
    wide, high = _enough(right - left, way[0], size), _enough(bottom - top, way[1], size)
    if (wide, high) != (right - left, bottom - top):
        way = scaled(wide / (right - left), high / (bottom - top)) @ way
        part = np.asarray(cv2.resize(part, (wide, high), interpolation=cv2.INTER_AREA), np.uint8)
    # OpenCV's coordinates refer to pixel centres.
    centred = moved(-0.5, -0.5) @ way @ moved(0.5, 0.5)
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    found = cv2.warpPerspective(part, centred, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(found, np.uint8)


def _enough(length: int, row: NDArray[np.float64], size: tuple[int, int]) -> int:
    """Pixels that a part of a picture needs along one side so that a grid skips none."""
    spanned = max(1.0, abs(row[0]) * size[0] + abs(row[1]) * size[1])  # picture pixels that the grid spans
    coarse = spanned / math.hypot(*size)
    wanted = length if coarse <= SHRUNK else max(1, round(length / coarse))
    return min(wanted, LONGEST)


def _needed(way: Map, size: tuple[int, int], of: tuple[int, int]) -> tuple[int, int, int, int] | None:
    """The pixels of a picture that a part of it depends on; None if the part lies outside."""
    there = corners((0, 0, *size), way)
    if there is None:
        return None
    x0, y0, x1, y1 = around(there)
    left, top = max(0, math.floor(x0) - EDGE), max(0, math.floor(y0) - EDGE)
    right, bottom = min(of[0], math.ceil(x1) + EDGE), min(of[1], math.ceil(y1) + EDGE)
    return (left, top, right, bottom) if left < right and top < bottom else None

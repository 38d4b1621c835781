"""Replaces what a call's pictures showed with something else, for counterfactuals.

The target is changed in its own picture, and carried over into the returned picture, which
keeps its size and everything else that the call did to it.
"""

import cv2
import numpy as np

from vtune.looks.geometry import Map, corners, inverse, onto
from vtune.looks.view import sampled
from vtune.schema.box import Box, clamp
from vtune.schema.decoded import Pixels

RADIUS = 5
"""Radius of the neighbourhood that inpainting uses, in pixels; ours."""
FRAME = 16
"""Minimum margin around a target that inpainting sees, in pixels; ours."""


def cut(source: Pixels, box: Box, size: tuple[int, int]) -> Pixels:
    """A region of a picture, resampled.

    Args:
        source: The picture, RGB, shape (h, w, 3).
        box: xyxy in its pixels.
        size: Width and height of the result, in pixels.
    """
    return sampled(source, onto(box, size), size)


def inpainted(source: Pixels, box: Box) -> Pixels:
    """A picture without its target: the box is filled from its surroundings.

    Source: Telea, An image inpainting technique based on the fast marching method, 2004 (OpenCV).
    """
    height, width = source.shape[:2]
    x0, y0, x1, y1 = _whole(box, width, height)
    margin = max(FRAME, 2 * RADIUS)
    left, top = max(0, x0 - margin), max(0, y0 - margin)
    part = source[top : y1 + margin, left : x1 + margin]
    hole = np.zeros(part.shape[:2], np.uint8)
    hole[y0 - top : y1 - top, x0 - left : x1 - left] = 255
    after = source.copy()
    after[top : y1 + margin, left : x1 + margin] = cv2.inpaint(
        np.ascontiguousarray(part), hole, RADIUS, cv2.INPAINT_TELEA
    )
    return after


def recoloured(source: Pixels, box: Box) -> Pixels:
    """A picture with its target's colours rotated: red becomes green, green blue and blue red.

    Shapes and writing are unchanged; greys have no colour to change.
    """
    height, width = source.shape[:2]
    x0, y0, x1, y1 = _whole(box, width, height)
    after = source.copy()
    after[y0:y1, x0:x1] = np.roll(source[y0:y1, x0:x1], 1, axis=2)
    return after


def carried(after: Pixels, returned: Pixels, way: Map, box: Box) -> Pixels | None:
    """A returned picture in which the region that it shows has been changed.

    Args:
        after: The changed picture.
        returned: The picture that the call returned.
        way: From pixels of the returned picture to those of the changed one.
        box: The changed region, xyxy in pixels of `after`.

    Returns:
        None if the returned picture shows nothing of the box.
    """
    height, width = returned.shape[:2]
    there = corners(box, inverse(way))
    if there is None:
        return None
    mask = np.zeros((height, width), np.uint8)
    # OpenCV's polygon coordinates refer to pixel centres.
    cv2.fillPoly(mask, [np.round(there.T - 0.5).astype(np.int32)], 1)
    inside = mask.astype(bool)
    if not inside.any():
        return None
    found = returned.copy()
    found[inside] = sampled(after, way, (width, height))[inside]
    return found


def region(centre: tuple[float, float], size: tuple[float, float], bounds: tuple[int, int]) -> Box:
    """The box of a given size around a point, moved (and cut if too large) to lie within a picture.

    Args:
        centre: (x, y) in pixels.
        size: Width and height, in pixels.
        bounds: Width and height of the picture.
    """
    ends = []
    for middle, side, most in zip(centre, size, bounds, strict=True):
        length = min(side, float(most))
        start = min(max(0.0, middle - length / 2), most - length)
        ends.append((start, start + length))
    (x0, x1), (y0, y1) = ends
    return x0, y0, x1, y1


def _whole(box: Box, width: int, height: int) -> tuple[int, int, int, int]:
    """A box in whole pixels, at least one per side."""
    x0, y0, x1, y1 = clamp(box, width, height)
    left, top = min(int(x0), width - 1), min(int(y0), height - 1)
    return left, top, max(left + 1, int(np.ceil(x1))), max(top + 1, int(np.ceil(y1)))

"""Maps between pictures: 3 x 3 matrices over pixel edges, so that (0, 0) is the upper left corner."""

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vtune.schema.box import Box

Map = NDArray[np.float64]
"""Shape (3, 3): maps (x, y, 1) in one picture to (X, Y, W) in another, at X / W, Y / W."""

REMEMBERED = 256
"""Number of cached maps: each claim is used several times."""
LARGEST = 1e6
"""Limit on the numbers of a map; ours: a picture has at most 32768 pixels per side."""
FARTHEST = 1e9
"""Pixels from a picture's corner beyond which nothing is tracked."""
STEEPEST = 1e12
"""Condition number of a map beyond which it cannot be inverted."""


def map_of(numbers: Sequence[float]) -> Map | None:
    """Six numbers (X = a x + b y + c, Y = d x + e y + f) or nine (a homography) as a map.

    Returns:
        None if it is not invertible, or no picture could have such a map: claims may contain anything.
    """
    return _map_of(tuple(numbers))


@functools.lru_cache(maxsize=REMEMBERED)
def _map_of(numbers: tuple[float, ...]) -> Map | None:
    square = np.array(numbers if len(numbers) == 9 else (*numbers, 0, 0, 1), np.float64).reshape(3, 3)
    if not np.isfinite(square).all() or np.abs(square).max() > LARGEST:
        return None
    square.setflags(write=False)
    return square if np.linalg.cond(square) < STEEPEST else None


def inverse(way: Map) -> Map:
    """The inverse of an invertible map."""
    return np.asarray(np.linalg.inv(way), np.float64)


def moved(x: float, y: float) -> Map:
    """The map that adds (x, y)."""
    return np.array([[1, 0, x], [0, 1, y], [0, 0, 1]], np.float64)


def scaled(x: float, y: float) -> Map:
    """The map that stretches by x and y."""
    return np.diag([x, y, 1.0])


def onto(box: Box, size: tuple[int, int]) -> Map:
    """The map from a picture of `size` (width and height, in pixels) onto a box."""
    x0, y0, x1, y1 = box
    return moved(x0, y0) @ scaled((x1 - x0) / size[0], (y1 - y0) / size[1])


def corners(box: Box, way: Map) -> NDArray[np.float64] | None:
    """The corners of a box under a map, shape (2, 4), clockwise from the upper left one.

    Returns:
        None if the horizon of a perspective runs through the box, or near it.
    """
    x0, y0, x1, y1 = box
    there = way @ np.array([[x0, x1, x1, x0], [y0, y0, y1, y1], [1, 1, 1, 1]], np.float64)
    if there[2].min() * there[2].max() <= 0:
        return None
    flat: NDArray[np.float64] = there[:2] / there[2]
    return flat if np.isfinite(flat).all() and np.abs(flat).max() < FARTHEST else None


def around(points: NDArray[np.float64]) -> Box:
    """The bounding box of some points, shape (2, n)."""
    (x0, y0), (x1, y1) = points.min(axis=1), points.max(axis=1)
    return float(x0), float(y0), float(x1), float(y1)


def covered(points: NDArray[np.float64]) -> float:
    """The area of a polygon, shape (2, n)."""
    x, y = points
    after = [*range(1, len(x)), 0]
    return abs(float(x @ y[after] - y @ x[after])) / 2

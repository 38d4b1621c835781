"""Drawing for puzzles: shaded backgrounds, and pictures as PNG."""

import functools

import numpy as np
import numpy.typing as npt

from vtune.schema.decode import png_of

Pixels = npt.NDArray[np.uint8]
Area = tuple[int, int, int, int]
"""A part of a picture, xyxy in pixels."""


def ground(side: int, low: int, high: int, green: int = 0) -> Pixels:
    """A square picture that shades from left to right in red and from top to bottom in blue.

    Args:
        side: Side length in pixels.
        low: Lowest value of red and blue.
        high: Highest value of red and blue.
        green: Constant value of green.
    """
    return _ground(side, low, high, green).copy()


def blank(side: int) -> Pixels:
    """A black square picture."""
    return np.zeros((side, side, 3), np.uint8)


def cut(pixels: Pixels, encoded: bytes, box: Area) -> bytes:
    """An area of a picture as PNG; `encoded` is the whole picture, which takes the longest to encode."""
    height, width, _ = pixels.shape
    x0, y0, x1, y1 = box
    return encoded if box == (0, 0, width, height) else png_of(pixels[y0:y1, x0:x1])


# Only a handful of distinct backgrounds: one per split of each kind of puzzle.
@functools.cache
def _ground(side: int, low: int, high: int, green: int) -> Pixels:
    ramp = np.linspace(low, high, side)
    pixels = np.empty((side, side, 3), np.uint8)
    pixels[..., 0] = ramp[None, :]
    pixels[..., 1] = green
    pixels[..., 2] = ramp[:, None]
    return pixels

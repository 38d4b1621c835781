"""How much of a picture shows something, and how much is blank margin."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from vtune.schema.decoded import Pixels

FINE = 512
"""Limit on the pixels per side of the raster on which the parts of a picture are laid out; ours."""
BLANK = 8
"""Grey levels by which the channels of a margin may differ from its most common colour; ours, as for plain
regions in `verify.py`: JPEG noise stays below it."""


def showing(
    pixels: Pixels, counted: Sequence[NDArray[np.float64]], passed_over: Sequence[NDArray[np.float64]]
) -> float:
    """Pixels of a picture that show something.

    Args:
        pixels: The picture, RGB.
        counted: Corners of the parts that count fully, blank or not, each of shape (2, n).
        passed_over: Corners of the parts that do not count, unless a counted one covers them. Everything
            outside both counts unless it is of one colour: figures and canvases have margins.
    """
    height, width = pixels.shape[:2]
    step = -(-max(height, width) // FINE)
    coarse = pixels[::step, ::step]
    layout = Image.new("L", (coarse.shape[1], coarse.shape[0]))
    pen = ImageDraw.Draw(layout)
    for parts, value in ((passed_over, 1), (counted, 2)):
        for part in parts:
            # Pillow's polygons include their last row and column.
            pen.polygon([(x / step - 0.5, y / step - 0.5) for x, y in part.T], fill=value)
    parts_of = np.asarray(layout)
    cells = int((parts_of == 2).sum()) + _lively(coarse[parts_of == 0])
    return float(cells * width * height / parts_of.size)


def _lively(pixels: NDArray[np.uint8]) -> int:
    """How many of the given pixels, shape (n, 3), differ from their most common colour."""
    if len(pixels) == 0:
        return 0
    colour = np.array([np.bincount(channel, minlength=256).argmax() for channel in pixels.T])
    return int((np.abs(pixels - colour).max(axis=1) > BLANK).sum())

"""Two-level pictures, such as thresholds and masks, and a region thresholded in the same way."""

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from vtune.looks.geometry import Map, around, corners, moved, onto
from vtune.looks.view import sampled
from vtune.schema.box import Box
from vtune.schema.decoded import Pixels

SEPARABLE = 0.95
"""Otsu's separability, the variance between two classes over the total variance, from which a picture counts
as bilevel; ours. It is 1 for two levels, 0.75 for evenly spread levels, 0.64 for Gaussian noise."""
SCARCE = 0.1
"""Share of the rarer level below which a picture shows only a few specks; ours."""
MOST = 1 << 16
"""Approximate number of pixels of a picture that are examined for levels; ours."""


def thresholded(
    source: Pixels, box: Box, pixels: Pixels, back: Map, first: Pixels, shown: Pixels
) -> Pixels | None:
    """A region on its grid, thresholded so that the same fraction of it is light as in the returned picture.

    Args:
        source: The input, RGB, shape (H, W, 3).
        box: The region, xyxy in pixels of the input.
        pixels: The returned picture, RGB, shape (h, w, 3).
        back: From pixels of the input to pixels of the returned picture.
        first: The region on its grid, shape (height, width, 3).
        shown: What the policy sees of it, on the same grid.

    Returns:
        Shape (height, width, 3), black and white; None if the returned picture is not bilevel, or nearly
        all of it is one level.
    """
    light = _light(_grey(_fewer(_part(pixels, back, box))))
    if light is None:
        return None
    x0, y0, x1, y1 = math.floor(box[0]), math.floor(box[1]), math.ceil(box[2]), math.ceil(box[3])
    region = _grey(source[y0:y1, x0:x1])
    if _negative(first, shown):
        light = 1 - light
    white = np.where(region > np.quantile(_fewer(region), 1 - light), 255, 0).astype(np.uint8)
    size = (first.shape[1], first.shape[0])
    return sampled(np.dstack([white] * 3), moved(-x0, -y0) @ onto(box, size), size)


def _part(pixels: Pixels, back: Map, box: Box) -> Pixels:
    """The part of a returned picture that shows a region; empty if it shows nothing of it."""
    there = corners(box, back)
    if there is None:
        return pixels[:0]
    x0, y0, x1, y1 = around(there)
    return pixels[max(0, round(y0)) : max(0, round(y1)), max(0, round(x0)) : max(0, round(x1))]


def _fewer(picture: Pixels) -> Pixels:
    """At most about `MOST` pixels of a picture or plane, subsampled: averaging would add levels."""
    step = max(1, math.isqrt(math.prod(picture.shape[:2]) // MOST))
    return np.ascontiguousarray(picture[::step, ::step])


def _grey(picture: Pixels) -> NDArray[np.uint8]:
    """Brightness, shape (h, w)."""
    return np.asarray(
        cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY) if picture.size else picture[..., 0], np.uint8
    )


def _light(grey: NDArray[np.uint8]) -> float | None:
    """Share of light pixels in a bilevel picture; None if it is not bilevel or one level is too rare.

    Otsu 1979, "A threshold selection method from gray-level histograms".
    """
    if grey.size == 0 or grey.min() == grey.max():
        return None
    level, _ = cv2.threshold(grey, 0, 255, cv2.THRESH_BINARY | cv2.THRESH_OTSU)
    light = grey > level
    share = float(light.mean())
    if not SCARCE <= share <= 1 - SCARCE:
        return None
    between = share * (1 - share) * (float(grey[light].mean()) - float(grey[~light].mean())) ** 2
    return share if between >= SEPARABLE * float(grey.var()) else None


def _negative(first: Pixels, second: Pixels) -> bool:
    """Whether light areas of one picture are dark in the other."""
    a, b = (_grey(one).astype(np.float32) for one in (first, second))
    return float(((a - a.mean()) * (b - b.mean())).sum()) < 0

"""Registers two pictures of one place where the claimed map is slightly off.

One pixel of rounding is a twentieth of a target of 20 pixels, too much for a local comparison.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

from vtune.looks.agreement import span
from vtune.looks.geometry import Map, moved
from vtune.schema.decoded import Pixels

REACH = 0.08
"""How far a claim may be off, as a fraction of the `span`."""
STEPS = 20
"""Limit on the iterations of the refinement."""


def margin(side: int) -> int:
    """Pixels around a grid with this `span` that are searched."""
    return max(2, round(REACH * side))


def registered(first: Pixels, around: Pixels) -> Map:
    """From the grid of `first` to that of `around`: the same place with `margin` more on each side.

    First the best shift by edge strength, then a bounded affine refinement.
    """
    height, width = first.shape[:2]
    most = (around.shape[1] - width) // 2
    side = span(height, width)
    a, b = _edges(first, side), _edges(around, side)
    scores = cv2.matchTemplate(b, a, cv2.TM_CCOEFF_NORMED)
    x, y = cv2.minMaxLoc(np.nan_to_num(scores))[3]
    warp = np.array([[1, 0, x], [0, 1, y]], np.float32)
    stop = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, STEPS, 1e-3)
    try:
        found = cv2.findTransformECC(a, b, warp, cv2.MOTION_AFFINE, stop)[1]
    except cv2.error:  # it does not converge
        return moved(x, y)
    way = moved(0.5, 0.5) @ np.vstack([found, [0, 0, 1]]).astype(np.float64) @ moved(-0.5, -0.5)
    ends = np.array([[0, width, width, 0], [0, 0, height, height], [1, 1, 1, 1]], np.float64)
    off = np.abs((way @ ends)[:2] - ends[:2] - most)
    return way if off.max() <= most else moved(x, y)


def _edges(picture: Pixels, side: int) -> NDArray[np.float32]:
    """Edge strength of the liveliest channel, compressed so that strong edges do not dominate."""
    smooth = cv2.GaussianBlur(picture.astype(np.float32), (0, 0), 0.8, borderType=cv2.BORDER_REFLECT)
    across = cv2.Sobel(smooth, cv2.CV_32F, 1, 0, ksize=3, scale=0.25)
    down = cv2.Sobel(smooth, cv2.CV_32F, 0, 1, ksize=3, scale=0.25)
    strength = np.sqrt(across * across + down * down).max(axis=2)
    return np.asarray(cv2.GaussianBlur(np.sqrt(strength), (0, 0), max(1.0, side / 48)), np.float32)

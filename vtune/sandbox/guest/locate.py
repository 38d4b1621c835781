"""Find where in an input image a picture was taken from, when its history is not known.

Template matching at a few scales, from coarse to fine; only a near-exact match counts, so a picture that
was changed beyond brightness and contrast stays unlocated rather than wrongly located.
"""

import math
from typing import Any

import cv2
import numpy as np

from .provenance import Matrix, Size

SCALES = (1.0, 2.0, 0.5, 3.0, 4.0)
"""Pixels of the picture for one pixel of the input; ours, the common zoom factors."""
MIN_SIDE = 12
"""Pixels; a smaller patch matches anywhere."""
MIN_CONTRAST = 4.0
"""Standard deviation of grey levels; a flat patch matches anywhere."""
MIN_CORRELATION = 0.97
"""Ours: what JPEG at quality 75 leaves of an exact copy."""
COARSE_SIDE = 12
"""Pixels of the smaller side of a template at the coarsest level."""
CANDIDATES = 5
"""Coarse peaks that are followed up."""
MIN_COARSE = 0.4
"""Correlation of a coarse peak worth following: half a pixel off, even noise keeps more."""
SETTLED_SIDE = 48
"""Pixels of the smaller side of a template beyond which only the best spot is followed."""
REACH = 3
"""Pixels around a peak that are searched at the next finer level."""


def locate(picture: Any, source: Any) -> Matrix | None:
    """Where a picture lies in its source.

    Args:
        picture: Grey levels, uint8, shape (h, w).
        source: Grey levels of an input image, uint8, shape (H, W).

    Returns:
        From pixels of the picture to pixels of the source, or None where there is no near-exact match.
    """
    if min(picture.shape) < MIN_SIDE or picture.std() < MIN_CONTRAST:
        return None
    if _shows_all(picture, source):
        return (source.shape[1] / picture.shape[1], 0, 0, 0, source.shape[0] / picture.shape[0], 0)
    best: tuple[float, Matrix] | None = None
    for scale in SCALES:
        size = (round(picture.shape[1] / scale), round(picture.shape[0] / scale))
        if min(size) < MIN_SIDE or size[0] > source.shape[1] or size[1] > source.shape[0]:
            continue
        template = picture if scale == 1 else cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
        score, x, y = _match(template, source)
        if score >= MIN_CORRELATION and (best is None or score > best[0]):
            fit = (size[0] / picture.shape[1], 0, float(x), 0, size[1] / picture.shape[0], float(y))
            best = (score, fit)
    return best[1] if best else None


def _shows_all(picture: Any, source: Any) -> bool:
    """Whether the picture is the whole source, at any size."""
    height, width = picture.shape
    if not math.isclose(width / height, source.shape[1] / source.shape[0], rel_tol=0.02):
        return False
    shrink = max(1.0, max(height, width, *source.shape) / 128)
    size = (max(1, round(source.shape[1] / shrink)), max(1, round(source.shape[0] / shrink)))
    small = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    whole = cv2.resize(source, size, interpolation=cv2.INTER_AREA)
    return float(cv2.matchTemplate(small, whole, cv2.TM_CCOEFF_NORMED)[0, 0]) >= 0.99


def _match(template: Any, source: Any) -> tuple[float, int, int]:
    """Best correlation and its place (x, y), found from coarse to fine."""
    levels = [(template, source)]
    while min(levels[-1][0].shape) >= 2 * COARSE_SIDE:
        levels.append((_half(levels[-1][0]), _half(levels[-1][1])))
    coarse_template, coarse_source = levels.pop()
    spots = _peaks(_correlation(coarse_template, coarse_source))
    spots = [spot for spot in spots if spot[0] >= MIN_COARSE]
    for finer_template, finer_source in reversed(levels):
        spots = [_refine(finer_template, finer_source, 2 * x, 2 * y) for _, x, y in spots]
        if min(finer_template.shape) >= SETTLED_SIDE:
            spots = sorted(spots)[-1:]
    return max(spots, default=(0.0, 0, 0))


def _half(picture: Any) -> Any:
    size: Size = (picture.shape[1] // 2, picture.shape[0] // 2)
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA)


def _correlation(template: Any, source: Any) -> Any:
    """Correlation at every place; where a patch of the source is flat there is none, and that counts as 0."""
    scores = cv2.matchTemplate(source, template, cv2.TM_CCOEFF_NORMED)
    scores[~np.isfinite(scores) | (np.abs(scores) > 1.01)] = 0
    return scores


def _peaks(scores: Any) -> list[tuple[float, int, int]]:
    found = []
    scores = scores.copy()
    for _ in range(CANDIDATES):
        _, score, _, (x, y) = cv2.minMaxLoc(scores)
        found.append((float(score), int(x), int(y)))
        scores[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2] = -1
    return found


def _refine(template: Any, source: Any, x: int, y: int) -> tuple[float, int, int]:
    height, width = template.shape
    left = min(max(0, x - REACH), source.shape[1] - width)
    top = min(max(0, y - REACH), source.shape[0] - height)
    window = source[top : y + REACH + height + 1, left : x + REACH + width + 1]
    _, score, _, (dx, dy) = cv2.minMaxLoc(_correlation(template, window))
    return float(score), left + int(dx), top + int(dy)

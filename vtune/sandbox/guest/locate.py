"""Finds where in an input a picture was taken from, when its history is not known.

Three steps, the cheapest first: is it the whole input, or one of the regions that the code is known to have
cropped; is it a copy at a common zoom; is it a copy at any zoom. Each compares grey levels up to brightness,
contrast, inversion, mirroring and quarter turns. Only a near-exact match counts, and only one that is much
better than any other place, so that a picture that was changed too much, or that looks like many places,
stays unlocated rather than wrongly located.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from .any_zoom import at_any_zoom
from .greys import LOOK, Source, correlation_of, same_detail, shrunk
from .maps import Box, Matrix, Size
from .matching import (
    CANDIDATES,
    MIN_CORRELATION,
    MIN_SIDE,
    SAME,
    Match,
    best_match,
    fitted,
    overlap,
    stands_out,
)
from .regions import Region

SCALES = (1.0, 2.0, 0.5, 3.0, 4.0)
"""Pixels of the picture per pixel of the input; ours, the common zoom factors."""
MIN_CONTRAST = 4.0
"""Standard deviation of grey levels; a flat patch matches anywhere."""
CERTAIN = 0.995
"""Correlation that ends the search for a better zoom."""
MIN_CHANGED = 0.8
"""Pixelwise correlation of a picture that was drawn on, blurred or sharpened; needs to be confirmed."""
MIN_FIT = 0.9
"""Correlation that confirms it, with both pictures reduced."""
GLANCE = 24
"""Longer side, in pixels, at which a hint is tried."""
MIN_GLANCE = 0.85
"""Correlation below which a hint is dropped."""
EDGE_TOLERANCE = 8
"""Grey levels by which a plain border may vary, because of JPEG and noise at its edge."""


@dataclass(frozen=True, slots=True)
class Found:
    """Where a picture, or the part of it inside a plain border, lies in its source."""

    matrix: Matrix
    """From pixels of the picture to pixels of the source."""
    box: Box
    """In pixels of the source."""


def region_in(grey: Any, source: Source, region: Region, hints: Sequence[Box]) -> Region | None:
    """What a picture shows of an input.

    Args:
        grey: Grey levels of the picture, uint8, shape (h, w).
        source: The input.
        region: The region of the whole input.
        hints: Boxes that the code is known to have cropped from it.
    """
    found = find(grey, source, hints)
    if found is None:
        return None
    moved = region.moved(found.matrix, (grey.shape[1], grey.shape[0]))
    box = tuple(round(side, 3) for side in found.box)
    return moved and Region(
        moved.image, moved.size, moved.matrix, (box[0], box[1], box[2], box[3]), moved.cuts
    )


def find(grey: Any, source: Source, hints: Sequence[Box]) -> Found | None:
    """The place of a picture in its source; None if there is no near-exact match. See `region_in`."""
    height, width = grey.shape
    inner = _within_border(grey)
    # First the picture as it is, then without its border: a plain edge may well belong to the input.
    for left, top, right, bottom in dict.fromkeys(((0, 0, width, height), inner)):
        picture = grey[top:bottom, left:right]
        if not _has_texture(picture):
            continue
        found = _among(picture, source, ((0, 0, *source.size), *hints)) or _at_common_zoom(picture, source)
        if found is None and picture.shape == grey.shape:
            found = at_any_zoom(picture, source)
        if found is not None:
            turn, box = found
            a, b, c, d, e, f = _matrix(box, turn, (right - left, bottom - top))
            return Found((a, b, c - a * left - b * top, d, e, f - d * left - e * top), box)
    return None


def _has_texture(picture: Any) -> bool:
    return min(picture.shape) >= MIN_SIDE and float(picture.std()) >= MIN_CONTRAST


def _within_border(grey: Any) -> tuple[int, int, int, int]:
    """The box of a picture inside the plain bands along its edges."""
    height, width = grey.shape
    corner = int(grey[0, 0]), int(grey[-1, -1])
    if abs(corner[0] - corner[1]) > EDGE_TOLERANCE:
        return 0, 0, width, height
    differs = np.abs(grey.astype(np.int16) - corner[0]) > EDGE_TOLERANCE
    rows, columns = np.flatnonzero(differs.any(1)), np.flatnonzero(differs.any(0))
    if not len(rows):
        return 0, 0, width, height
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _turned(picture: Any, turn: int) -> Any:
    picture = picture[:, ::-1] if turn >= 4 else picture
    return np.ascontiguousarray(np.rot90(picture, turn % 4))


def _matrix(box: Box, turn: int, size: Size) -> Matrix:
    """The map from a picture to its source, if the picture, turned, is what the box shows."""
    x0, y0, x1, y1 = box
    wide, high = x1 - x0, y1 - y0
    width, height = size
    # Where the picture's own corners (0, 0), (1, 0), (0, 1) go when it is mirrored, then turned.
    corners = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)]
    if turn >= 4:
        corners = [(1 - x, y) for x, y in corners]
    for _ in range(turn % 4):
        corners = [(y, 1 - x) for x, y in corners]
    (ox, oy), (ax, ay), (bx, by) = corners
    return (
        (ax - ox) * wide / width,
        (bx - ox) * wide / height,
        x0 + ox * wide,
        (ay - oy) * high / width,
        (by - oy) * high / height,
        y0 + oy * high,
    )


def _among(picture: Any, source: Source, boxes: Sequence[Box]) -> tuple[int, Box] | None:
    """The box, out of several, that the picture shows."""
    candidates = []
    for turn in range(8):
        turned = _turned(shrunk(picture, LOOK), turn)
        height, width = turned.shape
        glance = shrunk(turned, GLANCE)
        for box in dict.fromkeys(boxes):
            if min(box[2] - box[0], box[3] - box[1]) < MIN_SIDE:
                continue
            score = correlation_of(glance, source.cut(box, (glance.shape[1], glance.shape[0])))
            if score >= MIN_GLANCE:
                candidates.append((score, turn, box, turned, (width, height)))
    best: tuple[float, int, Box] | None = None
    for _, turn, box, turned, size in sorted(candidates, key=lambda c: -c[0])[:CANDIDATES]:
        cut = source.cut(box, size)
        score = correlation_of(turned, cut)
        if score >= MIN_GLANCE and (best is None or score > best[0]) and same_detail(turned, cut):
            best = (score, turn, box)
    if best is None or (best[0] < MIN_CORRELATION and not _stays(_turned(picture, best[1]), source, best[2])):
        return None
    return best[1:]


def _stays(picture: Any, source: Source, box: Box) -> bool:
    """Whether a box fits better than all boxes near it; then even a modified picture comes from there."""
    return overlap(fitted(picture, source, Match(0.0, box)).box, box) >= SAME


def _at_common_zoom(picture: Any, source: Source) -> tuple[int, Box] | None:
    for turn in range(8):
        turned = _turned(picture, turn) if turn else picture
        best: Match | None = None
        second = 0.0
        for scale in SCALES if turn == 0 else SCALES[:1]:
            size = (round(turned.shape[1] / scale), round(turned.shape[0] / scale))
            if min(size) < MIN_SIDE or size[0] > source.size[0] or size[1] > source.size[1]:
                continue
            template = turned if scale == 1 else cv2.resize(turned, size, interpolation=cv2.INTER_AREA)
            match, other = best_match(template, source)
            if best is None or match.score > best.score:
                best, second = match, other
            if best.score >= CERTAIN:
                break
        if best is not None and stands_out(best.score, second) and _confirmed(turned, source, best, turn):
            return turn, best.box
    return None


def _confirmed(turned: Any, source: Source, match: Match, turn: int) -> bool:
    """Whether a match at a common zoom holds; if it is not near-exact, it must also be a local optimum."""
    look = shrunk(turned, LOOK)
    if match.score < MIN_CHANGED or not same_detail(
        look, source.cut(match.box, (look.shape[1], look.shape[0]))
    ):
        return False
    if match.score >= MIN_CORRELATION:
        return True
    fit = fitted(turned, source, match)
    return turn == 0 and fit.score >= MIN_FIT and overlap(fit.box, match.box) >= SAME

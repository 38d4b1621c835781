"""Finds an unrotated copy at an unusual zoom, by trying each zoom with a small template."""

import math
from collections.abc import Iterator
from typing import Any

import cv2

from .greys import LOOK, Source, same_detail, shrunk
from .maps import Box
from .matching import (
    CANDIDATES,
    MIN_CORRELATION,
    SAME,
    SLACK,
    Match,
    best_match,
    fitted,
    overlap,
    peaks,
    scores_of,
    stands_out,
)

ZOOM_STEP = 1.1
"""Ratio of successive zooms: being 5 % off shifts the edge of a 16-pixel template by half a pixel."""
ZOOM_SIDE = 16
"""Pixels on the shorter side of a template with unknown zoom."""
ZOOM_BUDGET = 800_000
"""Places tried over all zooms; about 60 ms."""
SQUEEZED = (1.0, 0.5, 0.63, 0.8, 1.25, 1.6, 2.0)
"""Width-to-height ratios of pictures that are squeezed into squares."""


def at_any_zoom(picture: Any, source: Source) -> tuple[int, Box] | None:
    """Find an unrotated copy at an uncommon zoom: each zoom is tried with a small template."""
    square = abs(picture.shape[1] / picture.shape[0] - 1) < 0.02
    # Only squares are commonly made from pictures that are not square.
    aspects = SQUEEZED if square else (1.0,)
    places: list[Match] = []
    for aspect in aspects:
        small = _to_side(picture, ZOOM_SIDE, aspect)
        places += _zoomed(small, source, ZOOM_BUDGET / len(aspects))
    fits: list[Match] = []
    for place in sorted(places, reverse=True)[: 2 * CANDIDATES]:
        if all(overlap(place.box, fit.box) < 0.5 for fit in fits):
            fits.append(fitted(picture, source, place))
    fits.sort(reverse=True)
    if not fits or fits[0].score < MIN_CORRELATION:
        return None
    look = shrunk(picture, LOOK)
    if not same_detail(look, source.cut(fits[0].box, (look.shape[1], look.shape[0]))):
        return None
    return (0, fits[0].box) if _is_unique(picture, source, fits) else None


def _is_unique(picture: Any, source: Source, fits: list[Match]) -> bool:
    """Whether the first fit is better than the others, and than any other place at its own zoom."""
    best = fits[0]
    others = [fit.score for fit in fits[1:] if overlap(fit.box, best.box) < 0.5]
    size = (round(best.box[2] - best.box[0]), round(best.box[3] - best.box[1]))
    found, second = best_match(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), source)
    if overlap(found.box, best.box) < SAME:
        return False
    # The fit is refined, its competitors are not: repeating places show up as ties in the unrefined scores.
    if found.score - second < SLACK:
        return False
    return stands_out(max(found.score, best.score), max([second, *others]))


def _zoomed(small: Any, source: Source, budget: float) -> Iterator[Match]:
    """The best places of a small template at each zoom."""
    height, width = small.shape
    for shrink in _shrinks(small, source, budget):
        size = (round(source.size[0] * shrink), round(source.size[1] * shrink))
        if size[0] < width or size[1] < height:
            continue
        level = source.level(max(0, int(math.log2(1 / shrink))))
        shrunk = cv2.resize(level, size, interpolation=cv2.INTER_AREA)
        fx, fy = source.size[0] / size[0], source.size[1] / size[1]
        for score, x, y in peaks(scores_of(small, shrunk), small.shape)[:2]:
            yield Match(score, (x * fx, y * fy, (x + width) * fx, (y + height) * fy))


def _to_side(picture: Any, side: int, aspect: float) -> Any:
    """Resized to `side` pixels on the shorter side, after making it `aspect` times as wide."""
    width, height = picture.shape[1] * aspect, float(picture.shape[0])
    scale = side / min(width, height)
    size = (max(side, round(width * scale)), max(side, round(height * scale)))
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA)


def _shrinks(small: Any, source: Source, left: float) -> Iterator[float]:
    """Factors for shrinking the source: as far as the template allows, then less and less."""
    shrink = max(small.shape[1] / source.size[0], small.shape[0] / source.size[1])
    while shrink <= 1:
        left -= source.size[0] * source.size[1] * shrink**2
        if left < 0:
            return
        yield shrink
        shrink *= ZOOM_STEP

"""Find where in an input a picture was taken from, when its history is not known.

Three steps, the cheap ones first: is it one of the regions that the code is known to have cut out, or the
whole input; is it a copy at a common zoom; is it a copy at any zoom. Each works with grey levels up to
brightness, contrast, inversion, mirroring and quarter turns. Only a near-exact match counts, and only one
that is much better than any other place, so that a picture that was changed too much, or that looks like
many places, stays unlocated rather than wrongly located.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cv2
import numpy as np

from .provenance import Box, Matrix, Region, Size

SCALES = (1.0, 2.0, 0.5, 3.0, 4.0)
"""Pixels of the picture for one pixel of the input; ours, the common zoom factors."""
MIN_SIDE = 12
"""Pixels; a smaller patch matches anywhere."""
MIN_CONTRAST = 4.0
"""Standard deviation of grey levels; a flat patch matches anywhere."""
MIN_CORRELATION = 0.97
"""Ours: what JPEG at quality 75 leaves of an exact copy."""
CERTAIN = 0.995
"""Correlation that ends the search for a better zoom."""
MIN_CHANGED = 0.8
"""Correlation, pixel by pixel, of a picture that was drawn on, blurred or sharpened; it must be confirmed."""
MIN_DETAIL = 0.6
"""Correlation of two pictures less their shading."""
MIN_FIT = 0.9
"""Correlation that confirms it, of the two made small."""
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
GLANCE, LOOK = 24, 96
"""Longer side, in pixels, at which a hint is tried and at which it is confirmed."""
MIN_GLANCE = 0.85
"""Correlation with a hint below which it is none."""
SAME = 0.94
"""IoU of two boxes that are one but for the limits of fitting."""
ZOOM_STEP = 1.1
"""Between two zooms that are tried: 5 % off costs a template of 16 pixels half a pixel at its edge."""
ZOOM_SIDE = 16
"""Pixels of the smaller side of a template whose zoom is not known."""
ZOOM_BUDGET = 800_000
"""Places tried at all zooms together; about 60 ms."""
SQUEEZED = (1.0, 0.5, 0.63, 0.8, 1.25, 1.6, 2.0)
"""Width to height of what squares are made of."""
MARGIN = 2.5
"""How much nearer to a perfect match the best place must be than the next."""
SLACK = 0.004
"""Distance from a perfect match below which places cannot be told apart."""
EDGE_TOLERANCE = 8
"""Grey levels by which a plain border may vary: JPEG, and noise at its edge."""


class Source:
    """The grey levels of an input image, with what was once computed of them."""

    def __init__(self, grey: Any) -> None:
        self.grey = grey
        self._levels = [grey]
        self.size: Size = (grey.shape[1], grey.shape[0])

    def level(self, number: int) -> Any:
        """The image halved so many times."""
        while len(self._levels) <= number:
            self._levels.append(_half(self._levels[-1]))
        return self._levels[number]

    def cut(self, box: Box, size: Size) -> Any:
        """The part in a box, resized; the box is rounded to pixels of the level that is fine enough."""
        wide, high = box[2] - box[0], box[3] - box[1]
        number = max(0, int(math.log2(max(1.0, min(wide / size[0], high / size[1])))))
        level = self.level(number)
        fx, fy = level.shape[1] / self.size[0], level.shape[0] / self.size[1]
        x0, y0 = round(box[0] * fx), round(box[1] * fy)
        part = level[y0 : max(y0 + 1, round(box[3] * fy)), x0 : max(x0 + 1, round(box[2] * fx))]
        return cv2.resize(part, size, interpolation=cv2.INTER_AREA)


class _Match(NamedTuple):
    """A place, and how well it fits."""

    score: float
    box: Box
    """In pixels of the source."""


@dataclass(frozen=True, slots=True)
class Found:
    """Where a picture, or the part of it within a plain border, lies in its source."""

    matrix: Matrix
    """From pixels of the picture to pixels of the source."""
    box: Box
    """In pixels of the source."""


def region_in(grey: Any, source: Source, region: Region, hints: Sequence[Box]) -> Region | None:
    """What a picture shows of an input.

    Args:
        grey: Grey levels of the picture, uint8, shape (h, w).
        source: The input.
        region: Of the whole input.
        hints: Boxes that the code is known to have cut out of it.
    """
    found = find(grey, source, hints)
    if found is None:
        return None
    moved = region.moved(found.matrix, (grey.shape[1], grey.shape[0]))
    box = tuple(round(side, 3) for side in found.box)
    return moved and Region(
        moved.image, moved.size, moved.matrix, (box[0], box[1], box[2], box[3]), moved.cuts
    )


def locate(picture: Any, source: Any) -> Matrix | None:
    """Where a picture lies in its source.

    Args:
        picture: Grey levels, uint8, shape (h, w).
        source: Grey levels of an input image, uint8, shape (H, W).

    Returns:
        From pixels of the picture to pixels of the source, or None where there is no near-exact match.
    """
    found = find(picture, Source(source), ())
    return found.matrix if found else None


def find(grey: Any, source: Source, hints: Sequence[Box]) -> Found | None:
    """The place of a picture in its source, None where there is no near-exact one; see `region_in`."""
    height, width = grey.shape
    inner = _within_border(grey)
    # As it is before without its border: a plain edge may well belong to the input.
    for left, top, right, bottom in dict.fromkeys(((0, 0, width, height), inner)):
        picture = grey[top:bottom, left:right]
        if not _has_texture(picture):
            continue
        found = _among(picture, source, ((0, 0, *source.size), *hints)) or _at_common_zoom(picture, source)
        if found is None and picture.shape == grey.shape:
            found = _at_any_zoom(picture, source)
        if found is not None:
            turn, box = found
            a, b, c, d, e, f = _matrix(box, turn, (right - left, bottom - top))
            return Found((a, b, c - a * left - b * top, d, e, f - d * left - e * top), box)
    return None


def _has_texture(picture: Any) -> bool:
    return min(picture.shape) >= MIN_SIDE and float(picture.std()) >= MIN_CONTRAST


def _within_border(grey: Any) -> tuple[int, int, int, int]:
    """The box of a picture without plain bands along its edges."""
    height, width = grey.shape
    corner = int(grey[0, 0]), int(grey[-1, -1])
    if abs(corner[0] - corner[1]) > EDGE_TOLERANCE:
        return 0, 0, width, height
    differs = np.abs(grey.astype(np.int16) - corner[0]) > EDGE_TOLERANCE
    rows, columns = np.flatnonzero(differs.any(1)), np.flatnonzero(differs.any(0))
    if not len(rows):
        return 0, 0, width, height
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


# --- turns: 0 to 3 quarter turns, plus 4 for mirrored -------------------------------------------------------


def _turned(picture: Any, turn: int) -> Any:
    picture = picture[:, ::-1] if turn >= 4 else picture
    return np.ascontiguousarray(np.rot90(picture, turn % 4))


def _matrix(box: Box, turn: int, size: Size) -> Matrix:
    """From pixels of a picture to the source, where the picture, turned, is what the box shows."""
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


# --- a known region ----------------------------------------------------------------------------------------


def _among(picture: Any, source: Source, boxes: Sequence[Box]) -> tuple[int, Box] | None:
    """Which of some boxes the picture shows."""
    candidates = []
    for turn in range(8):
        turned = _turned(_shrunk(picture, LOOK), turn)
        height, width = turned.shape
        glance = _shrunk(turned, GLANCE)
        for box in dict.fromkeys(boxes):
            if min(box[2] - box[0], box[3] - box[1]) < MIN_SIDE:
                continue
            score = _correlation_of(glance, source.cut(box, (glance.shape[1], glance.shape[0])))
            if score >= MIN_GLANCE:
                candidates.append((score, turn, box, turned, (width, height)))
    best: tuple[float, int, Box] | None = None
    for _, turn, box, turned, size in sorted(candidates, key=lambda c: -c[0])[:CANDIDATES]:
        cut = source.cut(box, size)
        score = _correlation_of(turned, cut)
        if score >= MIN_GLANCE and (best is None or score > best[0]) and _same_detail(turned, cut):
            best = (score, turn, box)
    if best is None or (best[0] < MIN_CORRELATION and not _stays(_turned(picture, best[1]), source, best[2])):
        return None
    return best[1:]


def _stays(picture: Any, source: Source, box: Box) -> bool:
    """Whether a box fits better than all boxes near it: then even a changed picture comes from there."""
    return _overlap(_fitted(picture, source, _Match(0.0, box)).box, box) >= SAME


def _same_detail(a: Any, b: Any) -> bool:
    """Whether two pictures agree in more than their shading: skies and walls do not show what they are."""
    fine = [picture - cv2.blur(picture, (9, 9)) for picture in (a.astype(np.float32), b.astype(np.float32))]
    return _correlation_of(*fine) >= MIN_DETAIL


def _shrunk(picture: Any, side: int) -> Any:
    scale = side / max(picture.shape)
    if scale >= 1:
        return picture
    size = (max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale)))
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA)


def _correlation_of(a: Any, b: Any) -> float:
    """Correlation of two pictures of one size, 1 also for a picture and its negative."""
    x, y = a.astype(np.float32).ravel(), b.astype(np.float32).ravel()
    x, y = x - x.mean(), y - y.mean()
    length = math.sqrt(float(x @ x) * float(y @ y))
    return abs(float(x @ y)) / length if length > 1 else 0.0


# --- a common zoom -----------------------------------------------------------------------------------------


def _at_common_zoom(picture: Any, source: Source) -> tuple[int, Box] | None:
    for turn in range(8):
        turned = _turned(picture, turn) if turn else picture
        best: _Match | None = None
        second = 0.0
        for scale in SCALES if turn == 0 else SCALES[:1]:
            size = (round(turned.shape[1] / scale), round(turned.shape[0] / scale))
            if min(size) < MIN_SIDE or size[0] > source.size[0] or size[1] > source.size[1]:
                continue
            template = turned if scale == 1 else cv2.resize(turned, size, interpolation=cv2.INTER_AREA)
            match, other = _match(template, source)
            if best is None or match.score > best.score:
                best, second = match, other
            if best.score >= CERTAIN:
                break
        if best is not None and _stands_out(best.score, second) and _confirmed(turned, source, best, turn):
            return turn, best.box
    return None


def _confirmed(turned: Any, source: Source, match: _Match, turn: int) -> bool:
    """Whether a match at a common zoom holds; one that is not near-exact must also be the best around."""
    look = _shrunk(turned, LOOK)
    if match.score < MIN_CHANGED or not _same_detail(
        look, source.cut(match.box, (look.shape[1], look.shape[0]))
    ):
        return False
    if match.score >= MIN_CORRELATION:
        return True
    fit = _fitted(turned, source, match)
    return turn == 0 and fit.score >= MIN_FIT and _overlap(fit.box, match.box) >= SAME


def _stands_out(best: float, second: float) -> bool:
    return 1 - second >= MARGIN * (1 - best) + SLACK


def _match(template: Any, source: Source) -> tuple[_Match, float]:
    """Best place at this very size, found from coarse to fine, and the score of the best other place."""
    templates = [template]
    while min(templates[-1].shape) >= 2 * COARSE_SIDE:
        templates.append(_half(templates[-1]))
    last = len(templates) - 1
    spots = _peaks(_scores(templates[last], source.level(last)), templates[last].shape)
    spots = [spot for spot in spots if spot[0] >= MIN_COARSE]
    second = 0.0
    for number in range(last - 1, -1, -1):
        finer, level = templates[number], source.level(number)
        spots = sorted((_refine(finer, level, 2 * x, 2 * y) for _, x, y in spots), reverse=True)
        if min(finer.shape) >= SETTLED_SIDE and len(spots) > 1:
            second = max(second, _other(spots, finer.shape))
            spots = spots[:1]
    height, width = template.shape
    spots.sort(reverse=True)
    score, x, y = spots[0] if spots else (0.0, 0, 0)
    return _Match(score, (x, y, x + width, y + height)), max(second, _other(spots, template.shape))


def _other(spots: list[tuple[float, int, int]], shape: tuple[int, int]) -> float:
    """Best score of a spot that is not the first one over again."""
    _, x, y = spots[0] if spots else (0, 0, 0)
    far = (s for s, px, py in spots[1:] if abs(px - x) > shape[1] // 8 or abs(py - y) > shape[0] // 8)
    return max(far, default=0.0)


def _half(picture: Any) -> Any:
    size: Size = (max(1, picture.shape[1] // 2), max(1, picture.shape[0] // 2))
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA)


def _scores(template: Any, source: Any) -> Any:
    """Correlation at every place, 1 also for negatives; a flat patch of the source has none and counts 0."""
    if template.shape[0] > source.shape[0] or template.shape[1] > source.shape[1]:
        return np.zeros((1, 1), np.float32)
    scores = np.abs(cv2.matchTemplate(source, template, cv2.TM_CCOEFF_NORMED))
    scores[~np.isfinite(scores) | (scores > 1.01)] = 0
    return scores


def _peaks(scores: Any, shape: tuple[int, int]) -> list[tuple[float, int, int]]:
    """The best places, each well apart from the better ones."""
    found = []
    scores = scores.copy()
    apart = max(1, shape[0] // 6), max(1, shape[1] // 6)
    for _ in range(CANDIDATES):
        _, score, _, (x, y) = cv2.minMaxLoc(scores)
        found.append((float(score), int(x), int(y)))
        scores[max(0, y - apart[0]) : y + apart[0] + 1, max(0, x - apart[1]) : x + apart[1] + 1] = -1
    return found


def _refine(template: Any, source: Any, x: int, y: int) -> tuple[float, int, int]:
    height, width = template.shape
    left = max(0, min(max(0, x - REACH), source.shape[1] - width))
    top = max(0, min(max(0, y - REACH), source.shape[0] - height))
    window = source[top : y + REACH + height + 1, left : x + REACH + width + 1]
    _, score, _, (dx, dy) = cv2.minMaxLoc(_scores(template, window))
    return float(score), left + int(dx), top + int(dy)


# --- any zoom ----------------------------------------------------------------------------------------------


def _at_any_zoom(picture: Any, source: Source) -> tuple[int, Box] | None:
    """A copy at a zoom that is not common, not turned: each zoom is tried with a small template."""
    square = abs(picture.shape[1] / picture.shape[0] - 1) < 0.02
    # Only squares are commonly made of what is none.
    aspects = SQUEEZED if square else (1.0,)
    places: list[_Match] = []
    for aspect in aspects:
        small = _to_side(picture, ZOOM_SIDE, aspect)
        places += _zoomed(small, source, ZOOM_BUDGET / len(aspects))
    fits: list[_Match] = []
    for place in sorted(places, reverse=True)[: 2 * CANDIDATES]:
        if all(_overlap(place.box, fit.box) < 0.5 for fit in fits):
            fits.append(_fitted(picture, source, place))
    fits.sort(reverse=True)
    if not fits or fits[0].score < MIN_CORRELATION:
        return None
    look = _shrunk(picture, LOOK)
    if not _same_detail(look, source.cut(fits[0].box, (look.shape[1], look.shape[0]))):
        return None
    return (0, fits[0].box) if _is_unique(picture, source, fits) else None


def _is_unique(picture: Any, source: Source, fits: list[_Match]) -> bool:
    """Whether the first of some fits is better than the others, and than any place at its own zoom."""
    best = fits[0]
    others = [fit.score for fit in fits[1:] if _overlap(fit.box, best.box) < 0.5]
    size = (round(best.box[2] - best.box[0]), round(best.box[3] - best.box[1]))
    found, second = _match(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), source)
    if _overlap(found.box, best.box) < SAME:
        return False
    return _stands_out(max(found.score, best.score), max([second, *others]))


def _zoomed(small: Any, source: Source, budget: float) -> Iterator[_Match]:
    """The best places of a small template at every zoom."""
    height, width = small.shape
    for shrink in _shrinks(small, source, budget):
        size = (round(source.size[0] * shrink), round(source.size[1] * shrink))
        if size[0] < width or size[1] < height:
            continue
        level = source.level(max(0, int(math.log2(1 / shrink))))
        shrunk = cv2.resize(level, size, interpolation=cv2.INTER_AREA)
        fx, fy = source.size[0] / size[0], source.size[1] / size[1]
        for score, x, y in _peaks(_scores(small, shrunk), small.shape)[:2]:
            yield _Match(score, (x * fx, y * fy, (x + width) * fx, (y + height) * fy))


def _to_side(picture: Any, side: int, aspect: float) -> Any:
    """Resized so that its smaller side has so many pixels, and `aspect` times as wide as it was."""
    width, height = picture.shape[1] * aspect, float(picture.shape[0])
    scale = side / min(width, height)
    size = (max(side, round(width * scale)), max(side, round(height * scale)))
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA)


def _shrinks(small: Any, source: Source, left: float) -> Iterator[float]:
    """By how much the source is made smaller: as much as the template allows, then ever less."""
    shrink = max(small.shape[1] / source.size[0], small.shape[0] / source.size[1])
    while shrink <= 1:
        left -= source.size[0] * source.size[1] * shrink**2
        if left < 0:
            return
        yield shrink
        shrink *= ZOOM_STEP


def _fitted(picture: Any, source: Source, place: _Match) -> _Match:
    """The box near a place that fits best: each edge is moved by ever smaller steps."""
    look = _shrunk(picture, LOOK)
    size = (look.shape[1], look.shape[0])

    def score_of(box: list[float]) -> float:
        inside = box[0] >= 0 and box[1] >= 0 and box[2] <= source.size[0] and box[3] <= source.size[1]
        if not inside or box[2] - box[0] < MIN_SIDE or box[3] - box[1] < MIN_SIDE:
            return 0.0
        return _correlation_of(look, source.cut((box[0], box[1], box[2], box[3]), size))

    box = [min(max(0.0, side), limit) for side, limit in zip(place.box, source.size * 2, strict=True)]
    best = score_of(box)
    step = max(box[2] - box[0], box[3] - box[1]) / 16
    while step >= 0.5 and best > 0.5:
        improved = False
        for edges in ((0,), (1,), (2,), (3,), (0, 2), (1, 3)):
            for sign in (-1, 1):
                moved = [side + sign * step * (at in edges) for at, side in enumerate(box)]
                score = score_of(moved)
                if score > best:
                    box, best, improved = moved, score, True
        step = step if improved else step / 2
    return _Match(best, (box[0], box[1], box[2], box[3]))


def _overlap(a: Box, b: Box) -> float:
    """Intersection over union."""
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(0.0, wide) * max(0.0, high)
    areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return shared / (areas - shared)

"""Where a picture best fits in an input: at its exact size, and nudged from a nearby place."""

from typing import Any, NamedTuple

import cv2
import numpy as np

from .greys import LOOK, Source, correlation_of, half, shrunk
from .maps import Box

MIN_SIDE = 12
"""Pixels; a smaller patch matches anywhere."""
MIN_CORRELATION = 0.97
"""Ours: the correlation that JPEG at quality 75 leaves in an exact copy."""
COARSE_SIDE = 12
"""Pixels on the shorter side of a template at the coarsest level."""
CANDIDATES = 5
"""Coarse peaks that are refined."""
MIN_COARSE = 0.4
"""Correlation of a coarse peak worth refining: even noise keeps more at half a pixel's offset."""
SETTLED_SIDE = 48
"""Pixels on the shorter side of a template beyond which only the best spot is refined."""
REACH = 3
"""Pixels around a peak that are searched at the next finer level."""
SAME = 0.94
"""IoU from which two boxes are the same, given the precision of fitting."""
MARGIN = 2.5
"""How much closer to a perfect match the best place must be than the second best."""
SLACK = 0.004
"""Distance from a perfect match below which places cannot be told apart."""


class Match(NamedTuple):
    """A place, and how well it fits."""

    score: float
    box: Box
    """In pixels of the source."""


def stands_out(best: float, second: float) -> bool:
    """Whether the best score is clearly better than that of any other place."""
    return 1 - second >= MARGIN * (1 - best) + SLACK


def best_match(template: Any, source: Source) -> tuple[Match, float]:
    """The best place at exactly this size, searched from coarse to fine, and the best score elsewhere."""
    templates = [template]
    while min(templates[-1].shape) >= 2 * COARSE_SIDE:
        templates.append(half(templates[-1]))
    last = len(templates) - 1
    spots = peaks(scores_of(templates[last], source.level(last)), templates[last].shape)
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
    return Match(score, (x, y, x + width, y + height)), max(second, _other(spots, template.shape))


def _other(spots: list[tuple[float, int, int]], shape: tuple[int, int]) -> float:
    """The best score among spots that are distinct from the first."""
    _, x, y = spots[0] if spots else (0, 0, 0)
    far = (s for s, px, py in spots[1:] if abs(px - x) > shape[1] // 8 or abs(py - y) > shape[0] // 8)
    return max(far, default=0.0)


def scores_of(template: Any, source: Any) -> Any:
    """Correlation at each place, also 1 for negatives; 0 for flat patches of the source, which have none."""
    if template.shape[0] > source.shape[0] or template.shape[1] > source.shape[1]:
        return np.zeros((1, 1), np.float32)
    scores = np.abs(cv2.matchTemplate(source, template, cv2.TM_CCOEFF_NORMED))
    scores[~np.isfinite(scores) | (scores > 1.01)] = 0
    return scores


def peaks(scores: Any, shape: tuple[int, int]) -> list[tuple[float, int, int]]:
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
    _, score, _, (dx, dy) = cv2.minMaxLoc(scores_of(template, window))
    return float(score), left + int(dx), top + int(dy)


def fitted(picture: Any, source: Source, place: Match) -> Match:
    """The box near a place that fits best: each edge is moved in smaller and smaller steps."""
    look = shrunk(picture, LOOK)
    size = (look.shape[1], look.shape[0])

    def score_of(box: list[float]) -> float:
        inside = box[0] >= 0 and box[1] >= 0 and box[2] <= source.size[0] and box[3] <= source.size[1]
        if not inside or box[2] - box[0] < MIN_SIDE or box[3] - box[1] < MIN_SIDE:
            return 0.0
        return correlation_of(look, source.cut((box[0], box[1], box[2], box[3]), size))

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
    return Match(best, (box[0], box[1], box[2], box[3]))


def overlap(a: Box, b: Box) -> float:
    """Intersection over union."""
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(0.0, wide) * max(0.0, high)
    areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return shared / (areas - shared)

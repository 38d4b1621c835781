"""An oracle for lens puzzles: could anyone read the right digit in a returned picture?

The glyph, its candidates and the place of its sign are known, so reading is a forced choice by template
matching, done in two ways. By dots: the 5 x 7 dots of each candidate are matched with means and scatters of
brightness, channels, saturation and gradient at the dots, for shifts of up to two pixels. By pixels: the sign
drawn with each candidate, hatched or as edges, is mapped to the same place; this also reads outlines, and the
moire that reduction makes of hatching, which the eye misses. Polarity does not matter, and the map to the
place may rotate and mirror.

The result is about the picture as the policy gets it (`as_seen`), not about the file. A digit counts as
readable only if the best candidate fits well and leads the second best by a margin that destroyed pictures
and those of other puzzles reach in under 1 % of cases (`tests/data/test_lens_reader.py` has the calibration).
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from vtune.data import lens
from vtune.data.drawing import Pixels
from vtune.schema.decode import UNDECODABLE

Floats = npt.NDArray[np.float32]
Map = npt.NDArray[np.float64]
"""3 x 3: pixels of the puzzle's picture (x, y, 1) -> pixels of another picture."""

FACTOR = 28
"""Sides of a picture as seen are multiples of this: patch 14, merge 2 (Qwen2-VL)."""
MAX_ASPECT = 100
"""A more elongated picture is padded with black, as in `vtune.models.families.qwen`."""

ROWS, COLUMNS = 7, 5
MARGIN = 2
"""Pixels of the puzzle's picture by which a place may be off."""
FINE = 3
"""Samples per pixel of the puzzle's picture."""
CELL = lens.DOT * FINE
FAINT = 1.5
"""Shades (standard deviation over the dots) below which no figure is visible."""
SURE_DOTS, FIT_DOTS = 4.0, 0.75
"""Minimum evidence in nats, and minimum correlation, for a reading by dots to count."""
SURE_PIXELS, FIT_PIXELS = 2.0, 0.45
"""The same by pixels; there are more of them, so a chance fit is worse."""
PIXELS = 70
"""Independent values among a glyph's pixels (ours): strokes are wider than a pixel."""
CONTEXT = 8
"""Pixels around the sign that are needed to see its edges."""
INSIDE = 0.8
"""Minimum share of a glyph that must lie inside the picture."""


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What is to be read."""

    digit: str
    candidates: str
    box: tuple[int, int, int, int]
    """The sign, xyxy in pixels of the puzzle's picture."""
    spots: tuple[tuple[int, int], ...]
    """Upper left corner of each copy of the digit, (x, y) in pixels of the puzzle's picture."""
    drawn: Floats
    """The sign and `CONTEXT` pixels around it, with each candidate in each tone: (candidates, tones, height,
    width)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The reader's result for a picture."""

    digit: str | None
    """Its best guess; None if it sees nothing at all."""
    evidence: float
    """Nats in favour of that guess over the second best."""
    fit: float
    """Correlation of the picture with that guess, in [0, 1]."""
    sure: bool
    """Whether it fits and is far enough ahead of the others."""
    readable: bool
    """Whether it is sure and right: someone who knows what to look for can read it."""
    plain: bool = False
    """Whether the dots alone suffice: anyone can read it."""


NOTHING = Reading(None, 0.0, 0.0, False, False)


def target_of(puzzle: lens.Puzzle) -> Target | None:
    """What is to be read in a puzzle; None if no crop is needed."""
    sign = puzzle.target
    if sign is None:
        return None
    x, y, right, bottom = sign.box
    paper = np.array(lens.COLOURS[sign.colour], np.uint8)
    ink = (puzzle.pixels[y:bottom, x:right] != paper).any(axis=2).astype(np.float32)
    glyph = _dots(sign.digit).repeat(lens.DOT, axis=0).repeat(lens.DOT, axis=1)
    match = cv2.matchTemplate(2 * ink - 1, 2 * glyph - 1, cv2.TM_CCORR)
    rows, columns = np.nonzero(match > glyph.size - 0.5)
    spots = tuple((x + int(c), y + int(r)) for r, c in zip(rows, columns, strict=True))
    candidates = lens.EASY_DIGITS if len(spots) > 1 else "".join(lens.FONT)
    drawn = np.stack([_tones(_redrawn(puzzle.pixels, sign, spots, digit)) for digit in candidates])
    return Target(sign.digit, candidates, sign.box, spots, drawn)


def with_digit(pixels: Pixels, sign: lens.Sign, spots: Sequence[tuple[int, int]], digit: str) -> Pixels:
    """A puzzle's picture with another digit on its sign, in the same places."""
    x, y, right, bottom = sign.box
    paper = np.array(lens.COLOURS[sign.colour])
    picture = pixels.copy()
    picture[y:bottom, x:right] = paper
    rows, columns = np.nonzero(_dots(digit).repeat(lens.DOT, axis=0).repeat(lens.DOT, axis=1))
    light = np.where((rows + columns) % 2, 1, -1)[:, None]
    for left, top in spots:
        picture[top + rows, left + columns] = paper + light * np.minimum(paper, 255 - paper)
    return picture


def _redrawn(pixels: Pixels, sign: lens.Sign, spots: Sequence[tuple[int, int]], digit: str) -> Pixels:
    """The sign with another digit, and `CONTEXT` pixels around it, repeating the picture's edge outside."""
    x, y, right, bottom = sign.box
    picture = with_digit(pixels, sign, spots, digit)
    wide: Pixels = np.pad(picture, ((CONTEXT, CONTEXT), (CONTEXT, CONTEXT), (0, 0)), mode="edge")
    return wide[y : bottom + 2 * CONTEXT, x : right + 2 * CONTEXT]


def _tones(sign: Pixels) -> Floats:
    """What a tool may turn a sign's pixels into: brightness, slopes, curvature and edges: (tones, h, w)."""
    grey = cv2.cvtColor(sign, cv2.COLOR_RGB2GRAY)
    light = grey.astype(np.float32)
    dx, dy = (cv2.Sobel(light, cv2.CV_32F, *order) for order in ((1, 0), (0, 1)))
    return np.stack(
        [
            light,
            np.hypot(dx, dy).clip(0, 255),
            np.abs(cv2.Laplacian(light, cv2.CV_32F, ksize=3)).clip(0, 255),
            cv2.Canny(grey, 50, 150).astype(np.float32),
            cv2.Canny(cv2.GaussianBlur(grey, (5, 5), 0), 30, 100).astype(np.float32),
        ]
    )


def seen_size(width: int, height: int, *, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """(width, height) in pixels at which the policy sees a picture: Qwen2-VL's rule.

    Source: `smart_resize` of transformers' image_processing_qwen2_vl.
    """
    w, h = (round(side / FACTOR) * FACTOR for side in (width, height))
    if w * h > max_pixels:
        by = math.sqrt(width * height / max_pixels)
        w, h = (max(FACTOR, math.floor(side / by / FACTOR) * FACTOR) for side in (width, height))
    elif w * h < min_pixels:
        by = math.sqrt(min_pixels / (width * height))
        w, h = (math.ceil(side * by / FACTOR) * FACTOR for side in (width, height))
    return w, h


def as_seen(data: bytes, *, min_pixels: int, max_pixels: int) -> tuple[Pixels, Map] | None:
    """A returned picture as the policy gets it, and the map from the file's pixels to the picture's.

    Returns:
        The pixels, (height, width, 3) RGB, or None if the bytes are not a picture.
    """
    try:
        picture = Image.open(io.BytesIO(data)).convert("RGB")
    except UNDECODABLE:
        return None
    width, height = picture.size
    if max(width, height) > MAX_ASPECT * min(width, height):
        least = -(-max(width, height) // MAX_ASPECT)
        canvas = Image.new("RGB", (max(width, least), max(height, least)))
        canvas.paste(picture, (0, 0))
        picture = canvas
    width, height = picture.size
    size = seen_size(width, height, min_pixels=min_pixels, max_pixels=max_pixels)
    pixels = np.asarray(picture.resize(size, Image.Resampling.BICUBIC))
    return pixels, np.diag([size[0] / width, size[1] / height, 1.0])


def read(seen: Pixels, places: Sequence[Map], target: Target) -> Reading:
    """Read the digit in a picture.

    Args:
        seen: The picture as the policy gets it, (height, width, 3) RGB.
        places: Maps from the puzzle's picture to this one; several if it shows the sign several times.
        target: What is to be read.

    Returns:
        The surest reading over places, copies of the digit and views. It is readable if that one is right, or
        if the dots alone suffice.
    """
    planes = _planes(seen)
    best, plain = NOTHING, False
    for place in places:
        found = [
            dots
            for spot in target.spots
            if _inside(spot, place, seen.shape) >= INSIDE
            if (dots := _samples(planes, place, spot)) is not None
        ]
        if not found:
            continue
        together = [np.mean(found, axis=0)] if len(found) > 1 else []
        for dots in (*found, *together):
            reading = _by_dots(dots, target)
            plain = plain or reading.readable
            best = _surer(best, reading)
        best = _surer(best, _by_pixels(planes, place, target))
    return replace(best, readable=best.readable or plain, plain=plain)


def _surer(a: Reading, b: Reading) -> Reading:
    return b if (b.sure, b.evidence) > (a.sure, a.evidence) else a


def _planes(seen: Pixels) -> list[Floats]:
    """The views of a picture, stacks of (height, width, 3): channels; brightness, saturation, gradient."""
    colours = seen.astype(np.float32)
    light = colours @ np.array([0.299, 0.587, 0.114], np.float32)
    saturation = colours.max(axis=2) - colours.min(axis=2)
    dx, dy = (cv2.Sobel(light, cv2.CV_32F, *order) for order in ((1, 0), (0, 1)))
    return [colours, np.dstack([light, saturation, np.hypot(dx, dy) / 4])]


def _inside(spot: tuple[int, int], place: Map, shape: tuple[int, ...]) -> float:
    """Share of the glyph's dot centres that lie inside the picture."""
    xs, ys = np.meshgrid(
        spot[0] + (np.arange(COLUMNS) + 0.5) * lens.DOT, spot[1] + (np.arange(ROWS) + 0.5) * lens.DOT
    )
    x, y, w = place @ np.stack([xs.ravel(), ys.ravel(), np.ones(xs.size)])
    x, y = x / w, y / w
    return float(((x > 0) & (y > 0) & (x < shape[1]) & (y < shape[0])).mean())


def _samples(planes: Sequence[Floats], place: Map, spot: tuple[int, int]) -> Floats | None:
    """Values of the views at the 35 dots, for each shift of the place: (shifts, views, 35)."""
    width = (COLUMNS * lens.DOT + 2 * MARGIN) * FINE
    height = (ROWS * lens.DOT + 2 * MARGIN) * FINE
    # From samples of the canonical patch to pixels of the picture, each by pixel centres.
    half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    corner = np.array(
        [[1 / FINE, 0, spot[0] - MARGIN], [0, 1 / FINE, spot[1] - MARGIN], [0, 0, 1]], np.float64
    )
    back = np.linalg.inv(half) @ place @ corner @ half
    flags = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
    stacks = []
    for plane in planes:
        patch = cv2.warpPerspective(
            plane, back, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE
        )
        mean = cv2.blur(patch, (CELL, CELL), anchor=(0, 0))
        square = cv2.blur(patch * patch, (CELL, CELL), anchor=(0, 0))
        stacks += [mean, np.sqrt(np.maximum(square - mean * mean, 0))]
    field = np.concatenate(stacks, axis=2)
    shifts = range(0, 2 * MARGIN * FINE + 1, FINE)
    grid = [
        field[dy : dy + ROWS * CELL : CELL, dx : dx + COLUMNS * CELL : CELL].reshape(ROWS * COLUMNS, -1).T
        for dy in shifts
        for dx in shifts
    ]
    return np.stack(grid)


def _by_dots(dots: Floats, target: Target) -> Reading:
    """The candidate that the most decisive view prefers, each at its best shift."""
    fits = np.abs(_unit(dots, FAINT) @ _templates(target.candidates).T) / (ROWS * COLUMNS)
    return _choose(fits.max(axis=0), target, ROWS * COLUMNS, SURE_DOTS, FIT_DOTS)


def _by_pixels(planes: Sequence[Floats], place: Map, target: Target) -> Reading:
    """The candidate whose drawn sign, in any tone, best fits any view of the picture."""
    height, width = planes[0].shape[:2]
    inside = np.zeros((height, width), np.uint8)
    for x, y in target.spots:
        corners = np.array([[x, y], [x + 20, y], [x + 20, y + 28], [x, y + 28]], np.float64)
        spot = cv2.perspectiveTransform(corners[None], place)[0]
        cv2.fillConvexPoly(inside, np.round(spot - 0.5).astype(np.int32), 1)
    rows, columns = np.nonzero(inside)
    if len(rows) < ROWS * COLUMNS:
        return NOTHING
    top, left = rows.min(), columns.min()
    size = (int(columns.max() - left + 1), int(rows.max() - top + 1))
    corner = np.array(
        [[1, 0, target.box[0] - CONTEXT], [0, 1, target.box[1] - CONTEXT], [0, 0, 1]], np.float64
    )
    half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    to = np.array([[1, 0, -left], [0, 1, -top], [0, 0, 1]]) @ np.linalg.inv(half) @ place @ corner @ half
    scale = math.sqrt(abs(np.linalg.det(place[:2, :2])))
    drawn = []
    for tone in target.drawn.reshape(-1, *target.drawn.shape[2:]):
        # Remove what a reduction would remove before sampling.
        soft = cv2.GaussianBlur(tone, (0, 0), 0.45 * math.sqrt(scale**-2 - 1)) if scale < 0.75 else tone
        carried = cv2.warpPerspective(soft, to, size, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
        drawn.append(carried[rows - top, columns - left])
    views = np.concatenate([planes[0][rows, columns], planes[1][rows, columns][:, :1]], axis=1).T
    candidates, tones = target.drawn.shape[:2]
    pictures = np.stack(drawn).reshape(candidates, tones, -1)
    fits = np.concatenate([_own_fits(views, pictures[:, tone]) for tone in range(tones)])
    return _choose(fits, target, PIXELS, SURE_PIXELS, FIT_PIXELS)


def _own_fits(views: Floats, pictures: Floats) -> Floats:
    """|Correlation| of views with what is specific to each candidate: (views, candidates).

    The sign and its rim look the same with every digit and would make every candidate fit.
    """
    shared = _unit(pictures.mean(axis=0), FAINT)
    count = views.shape[1]
    own = [values - (values @ shared / count)[:, None] * shared for values in (views, pictures)]
    fits: Floats = np.abs(_unit(own[0], FAINT) @ _unit(own[1], FAINT).T) / count
    return fits


def _choose(fits: Floats, target: Target, count: int, sure: float, fit: float) -> Reading:
    """The candidate that the most decisive view prefers.

    A view's evidence is how much likelier its values are under its best candidate than under the second best,
    with noise of unknown size on `count` values.

    Args:
        fits: |correlation| of views with candidates: (views, candidates).
        target: What is to be read.
        count: Independent values that were correlated.
        sure: Minimum nats of evidence.
        fit: Minimum correlation.
    """
    ranked = np.sort(fits.clip(0, 0.995), axis=1)
    first, second = ranked[:, -1], ranked[:, -2]
    evidence = 0.5 * count * np.log((1 - second**2) / (1 - first**2))
    view = int(np.where(first >= fit, evidence, 0).argmax())
    digit = target.candidates[int(fits[view].argmax())]
    is_sure = bool(evidence[view] >= sure and first[view] >= fit)
    return Reading(
        digit, float(evidence[view]), float(first[view]), is_sure, is_sure and digit == target.digit
    )


def _unit(values: Floats, least: float) -> Floats:
    """Values minus their mean, divided by their standard deviation, along the last axis; 0 below `least`."""
    centred = values - values.mean(axis=-1, keepdims=True)
    scatter = centred.std(axis=-1, keepdims=True)
    unit: Floats = np.where(scatter >= least, centred / np.maximum(scatter, least), 0)
    return unit


def _templates(candidates: str) -> Floats:
    """The candidates' dots as unit patterns: (candidates, 35), mean 0, standard deviation 1."""
    dots = np.stack([_dots(digit).ravel() for digit in candidates])
    centred = dots - dots.mean(axis=1, keepdims=True)
    patterns: Floats = centred / centred.std(axis=1, keepdims=True)
    return patterns


def _dots(digit: str) -> Floats:
    return np.array([[int(dot) for dot in row] for row in lens.FONT[digit].split()], np.float32)

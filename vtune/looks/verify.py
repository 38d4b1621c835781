"""Does a returned picture show the region that it claims, as the policy sees it?"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vtune.looks.agreement import LONG, Agreement, Pixels, agreement, contrast, span
from vtune.looks.geometry import Map, corners, covered, inverse, moved, onto
from vtune.looks.register import margin, registered
from vtune.looks.view import View, sampled
from vtune.schema.box import Box
from vtune.schema.trajectory import Look

FINEST, COARSEST = 96, 24
"""Longer side of the grid on which pictures are compared, at most and at least; ours. More for strips."""
LONGER = 8.0
"""Times as many for strips, at most."""
ENOUGH = 64
"""Longer side that a region needs, of its own pixels, so that a smaller view of it is compared as it is.
Details finer than this are not asked for; in a smaller region every pixel may count."""
LEGIBLE = 14
"""Pixels, the root of the area, below which nothing can be read: one patch of Qwen2.5-VL."""
PLAIN = 3.0
"""Grey levels of standard deviation below which a region, or what is shown of it, has no structure."""
FAINT, FEW = 2, 0.001
"""Grey levels, and the share of pixels that may differ by more in a plain region: a glyph may be faint."""
SAME_COLOUR = 8
"""Grey levels by which the channels of a plain region may differ from what is shown of it; ours. Any plain
picture would show it otherwise; so enhanced, it cannot be known."""
MEAN, FLOOR, SHARP, CONTRAST = 0.55, 0.45, 0.62, 2.0
"""What `Agreement` must reach for a region to be verified. Ours: see README.md for how they were chosen."""
PALE = 0.08
"""Share of the region's contrast that what is shown of it must have too; ours."""
AGREEING = 0.5
"""Local correlation of a window that agrees."""
LEAST = 0.25
"""What a plain picture must still agree by where the policy gets fewer pixels than the region has. Ours."""
KEPT = 0.6
"""Share of what a plain picture agrees by that the returned one must agree by too. Ours: else a frame around
nothing would do, where a reduced region has little left but its rim."""
MOST_DRAWN = 1 << 21
"""Pixels of a returned picture that is drawn again for comparison, at most."""
NOTHING = 0.05
"""Share of structure in agreeing windows below which a picture shows nothing of what it claims."""


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """What came of a claim."""

    look: Look
    why: str
    side: float
    """Pixels of the region as the policy sees it: the root of its area, at its worse direction's scale."""
    found: Agreement | None = None
    """None where the pixels were not compared."""


def check(source: Pixels, view: View, claim: Map, box: Box) -> Checked:
    """Hold a claim against the pixels.

    Args:
        source: The input, RGB, shape (H, W, 3).
        view: What was returned.
        claim: From pixels of the returned picture to pixels of the input.
        box: The region, xyxy in pixels of the input.
    """
    back = inverse(claim)
    there = corners(box, back)
    if there is None:
        return Checked("unverified", "the horizon of its perspective runs through it", 0.0)
    own = math.sqrt((box[2] - box[0]) * (box[3] - box[1]))
    side = own * _finest(there, box, view.scale)
    # What a processor enlarges has no more in it than before.
    kept = own * min(1.0, _finest(there, box, _shrinking(view)))
    if side < LEGIBLE or kept < min(LEGIBLE, 0.9 * own):
        return Checked("illegible", f"{min(side, kept):.0f} pixels a side as the policy sees it", side)
    if _copied(source, view, claim, box):
        return Checked("verified", "pixel by pixel", side)
    size = _grid(box, back, view)
    way = onto(box, size)
    first, shown = sampled(source, way, size), view.part(back @ way, size)
    if _plain(source, box):
        same = _same_colour(first, shown)
        why = "as plain, and of the same colour" if same else "plain, and not of the same colour"
        return Checked("verified" if same else "unverified", why, side)
    if contrast(first) < PLAIN:
        same = _same_pixels(first, shown)
        why = "the very pixels of a faint region" if same else "the region is too faint to be known"
        return Checked("verified" if same else "unverified", why, side)
    return _compared(source, first, view, claim, back @ way, side)


def _shrinking(view: View) -> tuple[float, float]:
    """By how much the policy's processor shrinks a picture, across and down; 1 where it does not."""
    return min(1.0, view.scale[0]), min(1.0, view.scale[1])


def _finest(there: NDArray[np.float64], box: Box, scale: tuple[float, float]) -> float:
    """Pixels that the policy gets per pixel of a region, in the direction in which it gets fewest."""
    across = (there[:, 1] - there[:, 0]) / (box[2] - box[0])
    down = (there[:, 3] - there[:, 0]) / (box[3] - box[1])
    way = np.array(scale)[:, np.newaxis] * np.stack([across, down], axis=1)
    return float(np.linalg.svd(way, compute_uv=False).min())


def _plain(source: Pixels, box: Box) -> bool:
    """Whether a region has one colour, down to its pixels, but for a frame where JPEG mixes colours."""
    edge = min(16.0, (box[2] - box[0]) / 8, (box[3] - box[1]) / 8)
    x0, y0 = math.ceil(box[0] + edge), math.ceil(box[1] + edge)
    x1, y1 = math.floor(box[2] - edge), math.floor(box[3] - edge)
    inner = source[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)]
    if inner.size == 0 or contrast(inner) >= PLAIN:
        return False
    off = np.abs(inner - inner.mean(axis=(0, 1))).max(axis=2)
    return float((off > FAINT).mean()) < FEW


def _copied(source: Pixels, view: View, claim: Map, box: Box) -> bool:
    """Whether the policy sees the very pixels of a box: as most crops are, and quick to see."""
    left, top = claim[0, 2], claim[1, 2]
    if min(view.scale) < 1 or not np.array_equal(claim, moved(round(left), round(top))):
        return False
    x0, y0, x1, y1 = math.floor(box[0]), math.floor(box[1]), math.ceil(box[2]), math.ceil(box[3])
    mine = source[y0:y1, x0:x1]
    across, down = x0 - round(left), y0 - round(top)
    if across < 0 or down < 0:
        return False
    theirs = view.pixels[down : down + y1 - y0, across : across + x1 - x0]
    return mine.size > 0 and np.array_equal(mine, theirs)


def _same_colour(first: Pixels, second: Pixels) -> bool:
    """Whether two pictures, of which the first is plain, are of one colour, but for their edges."""
    height, width = first.shape[:2]
    inner = slice(height // 6, height - height // 6), slice(width // 6, width - width // 6)
    apart = np.abs(first[inner].mean(axis=(0, 1)) - second[inner].mean(axis=(0, 1))).max()
    return contrast(second[inner]) < 2 * PLAIN and float(apart) <= SAME_COLOUR


def _same_pixels(first: Pixels, second: Pixels) -> bool:
    """Whether two pictures differ by much less than the first one varies."""
    off = first.astype(np.float32) - second
    # The root of the square: the mean of what is off would forgive a glyph that is gone.
    return math.sqrt(float((off * off).mean())) <= contrast(first) / 2


def _compared(source: Pixels, first: Pixels, view: View, claim: Map, way: Map, side: float) -> Checked:
    """Compare a region, on its grid, with what the policy sees of it; `way` leads from grid to view."""
    found = _best(first, view, way)
    if _passes(found, first):
        return Checked("verified", f"agrees by {found.mean:.2f}", side, found)
    if agreement(first, first).mean < MEAN:
        # Smooth shading: an exact copy agrees no better, so it is known by its very pixels.
        same = _same_pixels(first, view.part(way, (first.shape[1], first.shape[0])))
        why = "the very pixels of smooth shading" if same else "the region is too smooth to be known"
        return Checked("verified" if same else "unverified", why, side, found)
    honest = _honest(source, view, claim, way, first)
    if honest is not None:
        possible = agreement(first, honest).mean
        if possible < LEAST or contrast(honest) < CONTRAST:
            return Checked("illegible", f"its detail is lost at {side:.0f} pixels a side", side, found)
        near = found.mean >= KEPT * possible
        found = _best(honest, view, way)
        if near and _passes(found, honest):
            return Checked("verified", f"agrees by {found.mean:.2f}, for its size", side, found)
    agreeing = float(found.weights[found.windows >= AGREEING].sum())
    if found.contrast < CONTRAST or agreeing < NOTHING:
        return Checked("faked", f"shows nothing of it (agrees by {found.mean:.2f})", side, found)
    return Checked("unverified", _shortfall(found), side, found)


def _best(first: Pixels, view: View, way: Map) -> Agreement:
    """The agreement as claimed or, where that does not pass, in better register."""
    height, width = first.shape[:2]
    found = agreement(first, view.part(way, (width, height)))
    if _passes(found, first):
        return found
    more = margin(span(height, width))
    around = way @ moved(-more, -more)
    shift = registered(first, view.part(around, (width + 2 * more, height + 2 * more)))
    better = agreement(first, view.part(around @ shift, (width, height)))
    return max(found, better, key=lambda one: (_passes(one, first), one.mean))


def _honest(source: Pixels, view: View, claim: Map, way: Map, first: Pixels) -> Pixels | None:
    """What the policy would see of the region in a plain picture of the same size and claim.

    None where neither the policy's processor nor the code shrinks anything, or the picture is too large.
    """
    height, width = first.shape[:2]
    there = corners((0, 0, width, height), way)
    shown = 1.0 if there is None else covered(there) * math.prod(_shrinking(view)) / (width * height)
    high, wide = view.pixels.shape[:2]
    if min(shown, *view.scale) >= 1 or high * wide > MOST_DRAWN:
        return None
    plain = View(sampled(source, claim, (wide, high)), view.seen)
    return plain.part(way, (width, height))


def _passes(found: Agreement, first: Pixels) -> bool:
    return (
        found.mean >= MEAN
        and found.floor >= FLOOR
        and found.sharpness >= SHARP
        and found.contrast >= max(CONTRAST, PALE * contrast(first))
    )


def _shortfall(found: Agreement) -> str:
    if found.mean < MEAN:
        return f"agrees by {found.mean:.2f} only"
    if found.floor < FLOOR:
        return f"partly covered: agrees by {found.floor:.2f} only in places"
    if found.sharpness >= SHARP:
        return f"too pale: its contrast is {found.contrast:.1f} grey levels"
    return f"blurred: {found.sharpness:.0%} of its detail is left"


def _grid(box: Box, back: Map, view: View) -> tuple[int, int]:
    """Width and height of the grid on which a region is compared.

    Its own pixels decide, not the shown ones: a coarser grid would average away what a small view has lost.
    """
    wide, high = box[2] - box[0], box[3] - box[1]
    own = max(wide, high)
    there = corners(box, back)
    shrunk = math.prod(_shrinking(view))
    shown = own if there is None else own * math.sqrt(covered(there) * shrunk / (wide * high))
    more = min(LONGER, max(1.0, own / (LONG * min(wide, high))))
    longest = min(more * FINEST, max(COARSEST, own if shown >= own else max(shown, min(own, more * ENOUGH))))
    return max(12, round(wide * longest / own)), max(12, round(high * longest / own))

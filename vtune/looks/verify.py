"""Does a returned picture show the region that it claims, as the policy sees it?"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vtune.looks.agreement import BANDS, LONG, Agreement, Bounds, agreement, contrast, span
from vtune.looks.bilevel import thresholded
from vtune.looks.filters import blurred
from vtune.looks.geometry import Map, corners, covered, inverse, moved, onto
from vtune.looks.register import margin, registered
from vtune.looks.view import View, sampled
from vtune.schema.box import Box
from vtune.schema.decoded import Pixels
from vtune.schema.trajectory import Look

FINEST, COARSEST = 96, 24
"""Limits on the longer side of the grid on which pictures are compared; ours. Strips get more."""
LONGER = 8.0
"""Upper bound on how much longer the grid of a strip may be."""
NARROWEST = 12
"""Lower bound on the shorter side of the grid."""
FADED = 0.6
"""Fraction of a region's own contrast below which a grid has lost too much of it; ours. Pixel-level hatching
keeps 0.1 to 0.5 on a grid of 64 pixels for 72, or on one that lies between pixels."""
CLEAR = 0.62
"""Mean agreement needed if a view is verified only on a region's own pixels; ours. Thresholds and
outlines of hatching reach 0.77 or more; a glyph filled to a block, which no longer shows its digit,
0.59 at most."""
ENOUGH = 64
"""Longer side, in its own pixels, from which a region is compared with a smaller view at the view's
resolution. Finer details are then not required; in a smaller region every pixel may matter."""
LEGIBLE = 14
"""Square root of the area, in pixels, below which nothing can be read: one patch of Qwen2.5-VL."""
PLAIN = 3.0
"""Standard deviation, in grey levels, below which a region, or what is shown of it, has no structure."""
SAME_COLOUR = 8
"""Grey levels by which the channels of a region without structure may differ from what is shown of it; ours.
Otherwise any plain picture would show it; once enhanced, it cannot be recognised."""
ROUNDED = 0.35
"""Standard deviation, in grey levels, that rounding alone can cause; ours."""
BOUNDS = Bounds(
    mean=0.55,
    worst=0.45,
    fine=0.45,
    sharpness=0.68,
    visible=0.08,
    share=0.2,
    channels=0.17,
    direction=0.12,
)
CONTRAST = 2.0
"""What `Agreement` must reach for a region to be verified. Ours: README.md explains the values."""
ALIKE = 0.85
"""What mean, worst and fine agreement must reach between a bilevel picture and the region thresholded alike;
ours. Otsu's threshold reaches 0.93 to 1 for each; scattered, noisy or coarse pictures, thresholded, at most
0.84."""
AGREEING = 0.5
"""Local correlation from which a window counts as agreeing."""
LEAST = 0.2
"""Minimum agreement of a plain picture if the policy gets fewer pixels than the region has. Ours."""
KEPT = 0.6
"""Fraction of a plain picture's agreement that the returned picture must reach too. Ours: otherwise a frame
around nothing would pass if a reduced region has little left but its rim."""
MOST_DRAWN = 1 << 21
"""Limit on the pixels of a returned picture that is redrawn for comparison."""
NOTHING = 0.05
"""Fraction of structure in agreeing windows below which a picture shows nothing of what it claims."""


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """The result of checking a claim."""

    look: Look
    why: str
    side: float
    """Pixels per side of the region as the policy sees it: the root of its area, at the scale of its worse
    direction."""
    found: Agreement | None = None
    """None if the pixels were not compared."""
    partly: bool = False
    """Unverified only because parts are hidden: everything on which `found.windows` agree is shown."""


def check(source: Pixels, view: View, claim: Map, box: Box) -> Checked:
    """Check a claim against the pixels.

    Args:
        source: The input, RGB, shape (H, W, 3).
        view: The returned picture.
        claim: From pixels of the returned picture to pixels of the input.
        box: The region, xyxy in pixels of the input.
    """
    back = inverse(claim)
    there = corners(box, back)
    if there is None:
        return Checked("unverified", "the horizon of its perspective runs through it", 0.0)
    own = math.sqrt((box[2] - box[0]) * (box[3] - box[1]))
    side = own * _finest(there, box, view.scale)
    # Enlarging by the policy's processor adds no information.
    kept = own * min(1.0, _finest(there, box, _shrinking(view)))
    if side < LEGIBLE or kept < min(LEGIBLE, 0.9 * own):
        return Checked("illegible", f"{min(side, kept):.0f} pixels per side as the policy sees it", side)
    if kept < 0.9 * own:
        side = min(side, kept)
    if _copied(source, view, claim, box):
        return Checked("verified", "pixel by pixel", side)
    size = _grid(box, back, view)
    found = _on_grid(source, view, claim, box, onto(box, size), size, side, own=False)
    if found.look == "verified" or not _fades(source, box, size):
        return found
    way, size = moved(*_corner(source, box)), _size(_own(source, box))
    again = _on_grid(source, view, claim, box, way, size, side, own=True)
    clear = again.found is not None and again.found.mean >= CLEAR
    return again if again.look == "verified" and clear else found


def _fades(source: Pixels, box: Box, size: tuple[int, int]) -> bool:
    """Whether a grid loses what a region's own pixels show, and these are few enough to be a grid.

    A grid that is coarser than a region's pixels, or lies between them, averages hatching away, and with it
    anything that a threshold, an outline or more contrast made of it before the policy's processor shrank the
    picture.
    """
    own = _own(source, box)
    if min(_size(own)) < NARROWEST or max(_size(own)) > FINEST:
        return False
    left = contrast(_within(sampled(source, onto(box, size), size)))
    return left < FADED * contrast(_within(own))


def _on_grid(
    source: Pixels,
    view: View,
    claim: Map,
    box: Box,
    way: Map,
    size: tuple[int, int],
    side: float,
    *,
    own: bool,
) -> Checked:
    """Compare a region on a grid of `size` (width and height), which `way` maps to the input.

    `own`: the grid consists of the region's own pixels.
    """
    back = inverse(claim)
    first, shown = sampled(source, way, size), view.part(back @ way, size)
    faint = None
    if contrast(_within(first)) < PLAIN:
        faint = _faint(_plain_view(source, view, claim, back @ way, first), shown, side)
        # On a grid slightly coarser than the hatching it fades, yet it may be visible if enhanced.
        if faint.look == "verified" or contrast(_own(source, box)) < PLAIN:
            return faint
    found = _compared(source, first, shown, view, claim, back @ way, side, own=own)
    if faint is not None:
        return found if found.look == "verified" else faint
    if found.look in ("unverified", "faked"):
        alike = thresholded(source, box, view.pixels, back, first, shown)
        return found if alike is None else _once_thresholded(alike, shown, view, back @ way, found)
    return found


def _size(picture: Pixels) -> tuple[int, int]:
    """Width and height."""
    return picture.shape[1], picture.shape[0]


def _within(picture: Pixels) -> Pixels:
    """A picture without its rim, which mixes with what is around it."""
    return picture[1:-1, 1:-1]


def _own(source: Pixels, box: Box) -> Pixels:
    """A region's own pixels: those more than half inside it, and at least one."""
    x0, y0 = _corner(source, box)
    return source[y0 : max(y0 + 1, round(box[3])), x0 : max(x0 + 1, round(box[2]))]


def _corner(source: Pixels, box: Box) -> tuple[int, int]:
    """The first of a region's own pixels, as (x, y)."""
    return min(round(box[0]), source.shape[1] - 1), min(round(box[1]), source.shape[0] - 1)


def _shrinking(view: View) -> tuple[float, float]:
    """The factors by which the policy's processor shrinks a picture, across and down; 1 if it does not."""
    return min(1.0, view.scale[0]), min(1.0, view.scale[1])


def _finest(there: NDArray[np.float64], box: Box, scale: tuple[float, float]) -> float:
    """Pixels that the policy gets per pixel of a region, in the direction with the fewest."""
    across = (there[:, 1] - there[:, 0]) / (box[2] - box[0])
    down = (there[:, 3] - there[:, 0]) / (box[3] - box[1])
    way = np.array(scale)[:, np.newaxis] * np.stack([across, down], axis=1)
    return float(np.linalg.svd(way, compute_uv=False).min())


def _copied(source: Pixels, view: View, claim: Map, box: Box) -> bool:
    """Whether the policy sees the exact pixels of a box: true of most crops, and quick to check."""
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


def _faint(first: Pixels, second: Pixels, side: float) -> Checked:
    """Recognise a nearly structureless region by its exact detail in the right colour, or not at all."""
    plane = first.astype(np.float32)
    off = plane - second
    colour = off.mean(axis=(0, 1))
    # Shading is not detail: it survives any blur.
    detail = plane - blurred(plane, BANDS[-1] * span(*first.shape[:2]))
    # Root mean square: a plain mean would tolerate a missing glyph.
    lost = float(np.sqrt(np.square(off - colour).mean()))
    same = np.abs(colour).max() <= SAME_COLOUR and lost <= max(ROUNDED, contrast(detail) / 2)
    if same:
        return Checked("verified", "the very detail of a faint region", side)
    return Checked(
        "unverified", "the region is too faint to be known otherwise than by its very detail", side
    )


def _compared(
    source: Pixels, first: Pixels, shown: Pixels, view: View, claim: Map, way: Map, side: float, *, own: bool
) -> Checked:
    """Compare a region, on its grid, with what the policy sees of it; `way` leads from grid to view.

    On its `own` pixels a region has all of its detail, of which a plain picture may keep little. A view that
    agrees with the plain picture must then also agree with the region itself, in every place.
    """
    found = _best(first, shown, view, way)
    if _passes(found, first):
        return Checked("verified", f"agrees by {found.mean:.2f}", side, found)
    if agreement(first, first, BOUNDS).mean < BOUNDS.mean:  # even an exact copy agrees no better
        return _faint(_plain_view(source, view, claim, way, first), shown, side)
    reference = _plain_view(source, view, claim, way, first)
    if reference is not first:
        possible = agreement(first, reference, BOUNDS).mean
        # Detail that code brought out before the picture was shrunk counts, even if a plain picture loses it.
        throughout = found.mean >= BOUNDS.mean and found.worst >= BOUNDS.worst
        if not throughout and (possible < LEAST or contrast(reference) < CONTRAST):
            return Checked("illegible", f"its detail is lost at {side:.0f} pixels per side", side, found)
        near = throughout or (not own and found.mean >= KEPT * possible)
        found = _best(reference, shown, view, way)
        if near and _passes(found, reference):
            return Checked("verified", f"agrees by {found.mean:.2f}, for its size", side, found)
    agreeing = float(found.weights[found.windows >= AGREEING].sum())
    if found.contrast < CONTRAST or agreeing < NOTHING:
        return Checked("faked", f"shows nothing of it (agrees by {found.mean:.2f})", side, found)
    return Checked("unverified", _shortfall(found), side, found, partly=_shows(found, reference))


def _once_thresholded(alike: Pixels, shown: Pixels, view: View, way: Map, found: Checked) -> Checked:
    """Compare a bilevel picture, which shows a region on average, with the region thresholded alike.

    A threshold drops some areas, and its lines follow fine texture, so even honest ones fail against
    grey levels. Noisy or covered pictures do not agree with the thresholded region either.
    """
    again = _best(alike, shown, view, way)
    if min(again.mean, again.worst, again.fine) < ALIKE or not _passes(again, alike):
        return found
    return Checked("verified", f"agrees by {again.mean:.2f}, thresholded", found.side, again)


def _best(first: Pixels, shown: Pixels, view: View, way: Map) -> Agreement:
    """The agreement as claimed (`shown`) or, if that does not pass, after registration."""
    height, width = first.shape[:2]
    found = agreement(first, shown, BOUNDS)
    if _passes(found, first):
        return found
    more = margin(span(height, width))
    around = way @ moved(-more, -more)
    shift = registered(first, view.part(around, (width + 2 * more, height + 2 * more)))
    better = agreement(first, view.part(around @ shift, (width, height)), BOUNDS)
    return max(found, better, key=lambda one: (_passes(one, first), one.mean))


def _plain_view(source: Pixels, view: View, claim: Map, way: Map, first: Pixels) -> Pixels:
    """What the policy would see of the region in a plain picture of the same size and claim.

    The region itself, `first`, if neither the policy's processor nor the code shrinks anything, or if the
    picture is too large.
    """
    height, width = first.shape[:2]
    there = corners((0, 0, width, height), way)
    shown = 1.0 if there is None else covered(there) * math.prod(_shrinking(view)) / (width * height)
    high, wide = view.pixels.shape[:2]
    if min(shown, *view.scale) >= 1 or high * wide > MOST_DRAWN:
        return first
    plain = View(sampled(source, claim, (wide, high)), view.seen)
    return plain.part(way, (width, height))


def _passes(found: Agreement, first: Pixels) -> bool:
    return found.worst >= BOUNDS.worst and _shows(found, first)


def _shows(found: Agreement, first: Pixels) -> bool:
    """Whether all bounds except that on the worst piece hold."""
    clear = found.contrast >= max(CONTRAST, BOUNDS.visible * contrast(first))
    return clear and BOUNDS.hold_but_in_places(found)


def _shortfall(found: Agreement) -> str:
    if found.mean < BOUNDS.mean:
        return f"agrees by {found.mean:.2f} only"
    if found.worst < BOUNDS.worst:
        return f"partly covered: agrees by {found.worst:.2f} only in places"
    if found.fine < BOUNDS.fine:
        return f"noisy: its finest detail agrees by {found.fine:.2f} only"
    if found.direction < BOUNDS.direction:
        return "as lively in each spot, but its lines run otherwise"
    if found.channels < BOUNDS.channels:
        return f"a channel shows other content: it follows the region by {found.channels:.2f} only"
    if found.sharpness >= BOUNDS.sharpness and found.share < BOUNDS.share and found.visible >= BOUNDS.visible:
        return f"other content lies over it: {found.share:.0%} of what can be seen is of it"
    if found.sharpness >= BOUNDS.sharpness:
        return (
            f"too pale: {found.visible:.0%} of its contrast is left, {found.contrast:.1f} grey levels in all"
        )
    return f"blurred: {found.sharpness:.0%} of its detail is left"


def _grid(box: Box, back: Map, view: View) -> tuple[int, int]:
    """Width and height of the grid on which a region is compared.

    Based on its own pixels, not the shown ones: a coarser grid would average away what a small view has lost.
    """
    wide, high = box[2] - box[0], box[3] - box[1]
    own = max(wide, high)
    there = corners(box, back)
    shrunk = math.prod(_shrinking(view))
    shown = own if there is None else own * math.sqrt(covered(there) * shrunk / (wide * high))
    more = min(LONGER, max(1.0, own / (LONG * min(wide, high))))
    longest = min(more * FINEST, max(COARSEST, own if shown >= own else max(shown, min(own, more * ENOUGH))))
    return max(NARROWEST, round(wide * longest / own)), max(NARROWEST, round(high * longest / own))

"""Whether one picture shows what another shows, allowing for any honest enhancement.

Two pictures of one place, on one grid, are compared by their structure. Each gives several views: brightness,
colour channels, saturation, local activity, and edges. Each view is split into bands of detail, and each band
is correlated locally, on a grid of windows, ignoring the sign. The best pair of views decides. So contrast
changes, thresholds, negatives, false colours and edge images still agree, while anything constant, blurred,
shuffled or covered does not.
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from vtune.looks.filters import blurred, directions
from vtune.schema.decoded import Pixels

Plane = NDArray[np.float32]
"""Shape (h, w)."""
Planes = NDArray[np.float32]
"""Shape (n, bands, h, w)."""

WINDOWS = 8
"""Windows along each side; more along a side that is longer than `span`."""
WINDOW = 0.07
"""Standard deviation of a window, as a fraction of the `span`."""
BANDS = (0.02, 0.04, 0.08)
"""Standard deviations, as fractions of the `span`, that separate the bands of detail."""
LONG = 3.0
"""Aspect ratio from which a strip is examined piece by piece; ours. With windows as high as the strip itself,
one whose lower half is black would pass."""
NOISE = 0.5
"""Squared grey levels of a band that are attributed to rounding and compression."""
FAINTEST = 4 * NOISE
"""Squared grey levels of a band below which a window has no structure: otherwise whatever is drawn next to a
smooth area would be compared with its noise."""
EDGES = ((50, 150), (100, 200))
"""Thresholds of the edges drawn for comparison: those of OpenCV's examples."""
LINES = 1.8
"""Factor on the agreement of edges with brightness. Thin lines never agree as well as tones do: drawn with
other thresholds they agree by about 0.45, and nothing else reaches 0.25."""
LINES_BELOW = 0.7
"""Agreement of tones from which edges are not drawn, because they could not improve it."""
TELLING = 0.25
"""How well a picture's edges must agree with its local activity to represent it: photographs
reach 0.4 to 0.5; hatched digits, in which edge detectors find nothing, 0.2."""
COLOURED = 4.0
"""Mean distance of a pixel's channels, in grey levels, above which a picture has colours to compare."""
PIECE = 3
"""Windows per side of the pieces of which the worst counts: a third of the `span`. Drawn boxes, arrows and
labels take up less of any piece than something that hides it."""
MATTERS = 0.1
"""Structure of a piece, as a fraction of an even share, below which it contains nothing to hide."""
SEEN = (1.0, 0.299, 0.587, 0.114)
"""Weights of brightness and the channels where visibility matters: ITU-R BT.601."""
BLANK = 0.02
"""Strength of lines, as a fraction of a picture's mean, below which directions are not compared; ours."""
SLIGHT = 1 / 8
"""Structure of a channel, as a fraction of the liveliest one's, below which it may show anything; ours."""
HATCHED = 0.05
"""Fraction of the structure in a coarser band below which that band is no reference for sharpness: a hatched
glyph has all its structure in the finest band; ours."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a pair of views must reach to show a region."""

    mean: float
    worst: float
    fine: float
    sharpness: float
    visible: float
    share: float
    channels: float
    direction: float

    def hold(self, found: "Agreement") -> bool:
        """Whether all bounds are reached."""
        return found.worst >= self.worst and self.hold_but_in_places(found)

    def hold_but_in_places(self, found: "Agreement") -> bool:
        """Whether all bounds except that on the worst piece are reached."""
        return (
            found.mean >= self.mean
            and found.fine >= self.fine
            and found.sharpness >= self.sharpness
            and found.visible >= self.visible
            and found.share >= self.share
            and found.channels >= self.channels
            and found.direction >= self.direction
        )


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two pictures show the same thing.

    All values are in [0, 1], except `contrast`, `visible` and `share`, which exceed 1 if contrast
    was raised or channels vary together, and `direction`, which is a cosine.
    """

    mean: float
    """Mean local correlation, weighted by the structure of the first picture in each window."""
    worst: float
    """The mean in the worst of all pieces, `PIECE` windows per side: low if something is hidden."""
    fine: float
    """The mean in the finest band alone: low if noise or scattered pixels drown it out."""
    sharpness: float
    """How much of the finer detail is preserved, relative to the coarser: low if the second is blurred."""
    visible: float
    """How visible the agreeing content is, relative to the contrast of the first: low if little of it
    is left, or only blue contains it."""
    share: float
    """How strong it is relative to everything the second picture shows: low if other content lies over it."""
    channels: float
    """How well the worst channel of the second follows the first; 1 if another bound fails."""
    direction: float
    """Whether lines run as in the first, in the worst piece, if the two agree only in local activity and
    in no tone; else 1. Noise may be as active in each spot."""
    contrast: float
    """Standard deviation of the second picture's liveliest channel, in grey levels."""
    windows: NDArray[np.float32]
    """Local correlation, shape (rows, columns): `WINDOWS` each, or more along a strip."""
    weights: NDArray[np.float32]
    """Structure of the first picture in each window, of the same shape; they sum to 1."""


def span(height: int, width: int) -> int:
    """The length that details and windows are measured by: the longer side, less in a strip."""
    return round(min(max(height, width), LONG * min(height, width)))


def agreement(first: Pixels, second: Pixels, bounds: Bounds) -> Agreement:
    """Compare two RGB pictures of one size, pixel by pixel in register.

    Args:
        first: The region.
        second: What is shown of it.
        bounds: A pair of views that reaches all of them takes precedence, if there is one.
    """
    tones, seen_tones = _tones(first, saturation=True), _tones(second, saturation=False)
    side = span(*first.shape[:2])
    lively = _activity(tones, side)
    mine = _bands([*tones, lively], side)
    theirs = _bands([*seen_tones, _activity(_to_the_eye(seen_tones), side)], side)
    compared = _compare(mine, theirs, _pairs(len(tones), len(seen_tones)), side)
    strength = _Strength.of(mine[: len(tones)], theirs[: len(seen_tones)])
    found = _strongest(compared, strength, bounds, lambda: _direction(tones, seen_tones, side))
    if found.mean < LINES_BELOW or found.direction < bounds.direction:
        edges = _bands(_edges(first), side)
        compared = _compare(edges, theirs, [(n, 0) for n in range(len(edges))], side)
        telling = _telling(mine[-1:], edges, side)[:, None, None, None]
        compared = replace(compared, agreed=np.minimum(LINES * compared.agreed, 1.0) * telling)
        lines = _strongest(compared, strength, bounds, lambda: 1.0)
        found = max(found, lines, key=lambda one: (bounds.hold(one), one.mean))
    if len(seen_tones) > 1 and bounds.hold_but_in_places(found):
        # Usually brightness is enough. False colours may instead follow its distance from the surroundings.
        found = replace(found, channels=_channels(mine[:1], theirs[1:4], side))
        if found.channels < bounds.channels:
            folded = _bands([np.abs(mine[0].sum(axis=0))], side)
            found = replace(found, channels=_channels(np.concatenate([mine, folded]), theirs[1:4], side))
    return replace(found, contrast=max(contrast(plane) for plane in seen_tones))


@dataclass(frozen=True, slots=True)
class _Compared:
    """Pairs of views; `energy` and `agreed` have the shape (pairs, bands, rows, columns)."""

    seen: list[int]
    """View of the second picture, per pair."""
    energy: Planes
    """Energy of the first, per window."""
    agreed: Planes
    """Local correlation."""
    sharpness: NDArray[np.float32]
    """How much of the finer detail is preserved, shape (pairs,)."""
    explained: NDArray[np.float32]
    """Root mean square of the part of the second view that follows the first, shape (pairs,)."""


@dataclass(frozen=True, slots=True)
class _Strength:
    """How visible pictures are, in grey levels: root mean squares of their bands."""

    weights: NDArray[np.float32]
    """For the views of the second: its tones, and its activity, which is weighted already."""
    first: float
    second: float

    @classmethod
    def of(cls, tones: Planes, seen_tones: Planes) -> "_Strength":
        """From the bands of the tones of both."""
        weights = np.array([*SEEN[: len(seen_tones)], 1.0], np.float32)
        return cls(weights, _strength(tones), _strength(seen_tones))


def _strength(tones: Planes) -> float:
    """That of a picture's brightness, or of its channels together if that is greater."""
    roots = np.sqrt(np.square(tones[: len(SEEN)]).mean(axis=(2, 3)).sum(axis=1))
    return float(max(roots[0], np.linalg.norm(roots[1:] * SEEN[1 : len(roots)])))


def _strongest(
    compared: _Compared, strength: _Strength, bounds: Bounds, direction: Callable[[], float]
) -> Agreement:
    """The agreement, without contrast, of the pair that agrees best, within bounds if possible.

    `direction` is called only for pairs in which the second view is the local activity.
    """
    agreed, sharpness = compared.agreed, compared.sharpness
    shown = compared.explained * strength.weights[compared.seen]
    visible = shown / (strength.first + 1e-3)
    lively = np.array(compared.seen) == len(strength.weights) - 1
    share = np.where(lively, np.float32(1), shown / (strength.second + 1e-3))
    weights = _structure(compared.energy)
    total = weights.sum(axis=1)
    means = _mean(agreed, weights, (1, 2, 3))
    fine = _mean(agreed[:, 0], weights[:, 0], (1, 2))

    def of_pair(n: int) -> Agreement:
        windows = _mean(agreed[n], weights[n], 0)
        return Agreement(
            mean=float(means[n]),
            worst=_worst(windows, total[n]),
            fine=float(fine[n]),
            sharpness=float(sharpness[n]),
            visible=float(visible[n]),
            share=float(share[n]),
            channels=1.0,
            direction=direction() if lively[n] else 1.0,
            contrast=0.0,
            windows=windows,
            weights=total[n] / total[n].sum(),
        )

    # Saturated tones agree well in coarse detail.
    order = (-means * sharpness).argsort(kind="stable")
    best = of_pair(int(order[0]))
    possible = (means >= bounds.mean) & (fine >= bounds.fine) & (sharpness >= bounds.sharpness)
    possible &= (visible >= bounds.visible) & (share >= bounds.share)
    others = (of_pair(int(n)) for n in order[1:] if possible[n])
    return next((one for one in itertools.chain([best], others) if bounds.hold(one)), best)


def _channels(views: Planes, theirs: Planes, side: int) -> float:
    """How well the worst channel follows a view; in fine bands, as photographs agree coarsely by chance."""
    compared = _compare(theirs, views, list(itertools.product(range(3), range(len(views)))), side)
    weights = _structure(compared.energy)[:, :2]
    followed = _mean(compared.agreed[:, :2], weights, (1, 2, 3)).reshape(3, -1).max(axis=1)
    shown = weights.sum(axis=(1, 2, 3)).reshape(3, -1)[:, 0]
    return float(followed[shown >= SLIGHT * shown.max()].min())


def contrast(picture: NDArray[Any]) -> float:
    """Standard deviation of a picture's liveliest channel, in grey levels."""
    return float(cv2.meanStdDev(picture)[1].max())


def _tones(picture: Pixels, *, saturation: bool) -> list[Plane]:
    """Brightness and, if the picture has colours, its three channels and (on request) its saturation."""
    channels: list[Plane] = [np.asarray(plane, np.float32) for plane in cv2.split(picture)]
    red, green, blue = channels
    grey: Plane = np.asarray(SEEN[1] * red + SEEN[2] * green + SEEN[3] * blue, np.float32)
    most = cv2.max(red, cv2.max(green, blue))
    spread = most - cv2.min(red, cv2.min(green, blue))
    if cv2.mean(spread)[0] < COLOURED:
        return [grey]
    saturated = np.asarray(255 * spread / (most + 1), np.float32)
    return [grey, *channels, saturated] if saturation else [grey, *channels]


def _to_the_eye(tones: list[Plane]) -> list[Plane]:
    """Brightness and channels, each weighted by how visible it is."""
    return [weight * plane for weight, plane in zip(SEEN, tones, strict=False)]


def _activity(tones: list[Plane], side: int) -> Plane:
    """How much the picture varies around each pixel, in its liveliest channel: hatching, print, edges."""
    planes = np.dstack(tones[:4])
    sigma = max(0.8, BANDS[0] * side)
    mean = blurred(planes, sigma)
    varied = blurred(planes * planes, sigma) - mean * mean
    return np.sqrt(np.maximum(functools.reduce(cv2.max, cv2.split(varied)), 0))


def _direction(tones: list[Plane], seen_tones: list[Plane], side: int) -> float:
    """Whether lines run the same way: the cosine of twice the angle between, in the worst piece.

    Or of four times the angle, if that is greater: a derivative along one axis keeps only one of two crossing
    sets of lines, a right angle apart. The brightness or channels with the most similar lines count.
    """
    (mine, _), (theirs, strength) = (
        directions(np.dstack(planes[: len(SEEN)]), side) for planes in (tones, seen_tones)
    )
    down, across = (_window_matrix(length, side) for length in mine.shape[:2])

    def between(i: int, j: int) -> float:
        first, second = mine[..., i], theirs[..., j]
        strong = np.abs(first)
        turned = first * second.conj() / (strong * np.abs(second) + 1e-3)
        turned[strength[..., j] < BLANK * strength[..., j].mean()] = 1
        weight = np.sqrt(strong)
        total = down @ weight @ across.T + np.float32(1e-6)
        cosines = (turned.real, (turned * turned).real)
        return max(_worst(down @ (weight * cosine) @ across.T / total, total) for cosine in cosines)

    return max(between(i, j) for i in range(mine.shape[2]) for j in range(theirs.shape[2]))


def _edges(picture: Pixels) -> list[Plane]:
    """Lines where brightness, or any channel, changes most, as drawn by edge detectors."""
    grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    return [
        cv2.Canny(drawn, low, high).astype(np.float32) for drawn in (grey, picture) for low, high in EDGES
    ]


def _pairs(tones: int, seen_tones: int) -> list[tuple[int, int]]:
    """Which views are compared: tones with tones, and activity with brightness and activity."""
    pairs = [(0, j) for j in range(seen_tones)] + [(i, 0) for i in range(1, tones)]
    pairs += [(i, i) for i in range(1, min(tones, seen_tones))]
    return [*pairs, (tones, seen_tones), (tones, 0)]


def _bands(planes: list[Plane], side: int) -> Planes:
    """Each plane in bands from fine to coarse, shape (n, bands, h, w); smooth shading is dropped."""
    levels = [np.dstack(planes)]
    levels += [blurred(levels[0], max(0.6, share * side)) for share in BANDS]
    bands = np.stack([finer - coarser for finer, coarser in itertools.pairwise(levels)])
    return np.ascontiguousarray(np.moveaxis(bands, 3, 0))


def _compare(views: Planes, seen: Planes, pairs: list[tuple[int, int]], side: int) -> _Compared:
    """Pairs of views, as (index in the first, index in the second)."""
    down, across = (_window_matrix(length, side) for length in views.shape[2:])

    def pooled(values: Planes) -> Planes:
        return np.asarray(down @ values @ across.T, np.float32)

    mine, theirs = pooled(views * views), pooled(seen * seen)
    first, second = (list(places) for places in zip(*pairs, strict=True))
    shared = np.abs(pooled(views[first] * seen[second]))
    a, b = mine[first], theirs[second]
    agreed = shared / np.sqrt((a + NOISE) * (b + NOISE))
    # Slope of a regression per band, without its sign: how much of the band is found again.
    slopes = shared.sum(axis=(2, 3)) / (a.sum(axis=(2, 3)) + NOISE * max(len(down), len(across)))
    sharpness = np.minimum(slopes[:, 1] / (slopes[:, 2] + 1e-3), 1.0)
    structure = _structure(a).sum(axis=(2, 3))
    hatched = structure[:, 1:].min(axis=1) < HATCHED * structure.sum(axis=1)
    total = a.sum(axis=(1, 2, 3))
    return _Compared(
        seen=second,
        energy=a,
        agreed=np.asarray(agreed, np.float32),
        sharpness=np.where(hatched, np.float32(1), sharpness),
        explained=shared.sum(axis=(1, 2, 3)) / np.sqrt(total * len(down) * len(across) + 1e-6),
    )


def _window_matrix(length: int, side: int) -> NDArray[np.float32]:
    """Weights of each pixel of a line in each window, shape (windows, length); each row sums to 1."""
    windows = max(WINDOWS, round(WINDOWS * length / side))
    centres = (np.arange(windows) + 0.5) * length / windows - 0.5
    distance = (np.arange(length) - centres[:, np.newaxis]) / (WINDOW * side)
    weights = np.exp(-0.5 * distance * distance)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)


def _structure(energy: Planes) -> Planes:
    """How much structure there is in each band of each window; close to zero if there is only noise."""
    return np.asarray(np.sqrt(np.maximum(energy - FAINTEST, 0) + 1e-4), np.float32)


def _mean(agreed: Planes, weights: Planes, axes: int | tuple[int, ...] | None) -> NDArray[np.float32]:
    """Correlation over some axes, weighted by structure."""
    return np.asarray((agreed * weights).sum(axis=axes) / weights.sum(axis=axes), np.float32)


def _worst(windows: NDArray[np.float32], total: NDArray[np.float32]) -> float:
    """The mean of the piece that agrees least, among those with enough structure."""
    rows, columns = (length - PIECE + 1 for length in total.shape)
    # With the anchor in the corner, the first `rows` x `columns` sums cover full pieces.
    agreed, structure = (
        cv2.boxFilter(plane, -1, (PIECE, PIECE), anchor=(0, 0))[:rows, :columns]
        for plane in (windows * total, total)
    )
    held = structure >= MATTERS * total.mean()
    return float((agreed[held] / structure[held]).min())


def _telling(lively: Planes, edges: Planes, side: int) -> NDArray[np.bool_]:
    """Which edge views reflect where the picture is active: in fine hatching, detectors find nothing."""
    compared = _compare(lively, edges, [(0, n) for n in range(len(edges))], side)
    return np.asarray(_mean(compared.agreed, _structure(compared.energy), (1, 2, 3)) >= TELLING)

"""Whether one picture shows what another shows, allowing for any honest enhancement.

Two pictures of one place, on one grid, are compared by their structure. Each gives several views: brightness,
its colours, its saturation, how lively each spot is, where its edges are. Each view is split into bands of
detail, and each band is correlated spot by spot, on a grid of windows; the sign does not count. The best pair
of views decides. So contrast, thresholds, negatives, false colours and edges keep their agreement, and what
is constant, blurred, shuffled or covered has none.
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
"""Windows along each side, more along one that is longer than `span`."""
WINDOW = 0.07
"""Standard deviation of a window, as a share of the `span`."""
BANDS = (0.02, 0.04, 0.08)
"""Standard deviations, as shares of the `span`, at which the bands of detail part."""
LONG = 3.0
"""Times as long as it is high, from which a strip is looked at piece by piece; ours. With windows as high as
itself, one whose lower half is black would do."""
NOISE = 0.5
"""Squared grey levels of a band that are taken for rounding and compression."""
FAINTEST = 4 * NOISE
"""Squared grey levels of a band below which a window has no structure: else what is drawn beside a smooth
place would be compared with its noise."""
EDGES = ((50, 150), (100, 200))
"""Thresholds of the edges that are drawn for comparison: those of OpenCV's examples."""
LINES = 1.8
"""What agreement of edges with brightness is multiplied by. Thin lines never agree as tones do: drawn with
other thresholds by about 0.45, while nothing else reaches 0.25."""
LINES_BELOW = 0.7
"""Agreement of tones from which on edges are not drawn: they could add nothing."""
TELLING = 0.25
"""What the edges of a picture must agree by with how busy it is, or they do not stand for it: photographs
reach 0.4 to 0.5, hatched digits, of which edge detectors show nothing, 0.2."""
COLOURED = 4.0
"""Mean distance of a pixel's channels, in grey levels, above which a picture has colours to compare."""
PIECE = 3
"""Windows a side of the pieces of which the worst counts: a third of the `span`. Drawn boxes, arrows and
labels take less of any piece than what hides it."""
MATTERS = 0.1
"""Structure of a piece, as a share of its even share, below which it holds nothing to be hidden."""
SEEN = (1.0, 0.299, 0.587, 0.114)
"""What brightness and the channels weigh where the question is what can be seen: ITU-R BT.601."""
BLANK = 0.02
"""Strength of lines, as a share of a picture's mean, below which none could run otherwise; ours."""
SLIGHT = 1 / 8
"""Structure of a channel, as a share of the liveliest one's, below which it may show anything; ours."""
HATCHED = 0.05
"""Share of structure in a coarser band below which it does not measure what is left of the finer: a hatched
glyph has all of its own in the finest; ours."""


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
        """Whether all of them are reached."""
        return found.worst >= self.worst and self.hold_but_in_places(found)

    def hold_but_in_places(self, found: "Agreement") -> bool:
        """Whether all of them are reached except that of the worst piece."""
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

    All values lie in [0, 1], but for `contrast`, for `visible` and `share`, which exceed 1 where contrast
    was raised or channels vary together, and for `direction`, which is a cosine.
    """

    mean: float
    """Local correlation, averaged by the structure that the first picture has in each window."""
    worst: float
    """The mean in the worst of all pieces, `PIECE` windows a side: low if something is hidden."""
    fine: float
    """The mean in the finest band alone: low if noise or scattered pixels drown it out."""
    sharpness: float
    """How much of the finer detail is preserved, relative to the coarser: low if the second is blurred."""
    visible: float
    """How strong what agrees is to the eye, against the contrast of the first: low where little of it
    is left, or blue alone has it."""
    share: float
    """How strong it is relative to all that the second shows: low if other content lies over it."""
    channels: float
    """How well each channel of the second follows the first, at least; 1 if something else fails."""
    direction: float
    """In the worst of all pieces, whether lines run as in the first, where the two agree in how lively each
    spot is and in no tone; else 1. Noise may be as lively in each spot."""
    contrast: float
    """Standard deviation of the second picture's liveliest channel, in grey levels."""
    windows: NDArray[np.float32]
    """Local correlation, shape (rows, columns): `WINDOWS` each, or more along a strip."""
    weights: NDArray[np.float32]
    """Structure of the first picture in each window, of the same shape; they sum to 1."""


def span(height: int, width: int) -> int:
    """The length by which a picture's details and windows are measured: its longer side, less in a strip."""
    return round(min(max(height, width), LONG * min(height, width)))


def agreement(first: Pixels, second: Pixels, bounds: Bounds) -> Agreement:
    """Compare two RGB pictures of one size, pixel by pixel in register.

    Args:
        first: The region.
        second: What is shown of it.
        bounds: Of all pairs of views, one that reaches them counts, where there is one.
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
        # Mostly, brightness is enough. False colours rise and fall, as its distance from what is around does.
        found = replace(found, channels=_channels(mine[:1], theirs[1:4], side))
        if found.channels < bounds.channels:
            folded = _bands([np.abs(mine[0].sum(axis=0))], side)
            found = replace(found, channels=_channels(np.concatenate([mine, folded]), theirs[1:4], side))
    return replace(found, contrast=max(contrast(plane) for plane in seen_tones))


@dataclass(frozen=True, slots=True)
class _Compared:
    """Pairs of views; `energy` and `agreed` have the shape (pairs, bands, rows, columns)."""

    seen: list[int]
    """The view of the second picture, by pair."""
    energy: Planes
    """Of the first, by window."""
    agreed: Planes
    """Local correlation."""
    sharpness: NDArray[np.float32]
    """How much of the finer detail comes across, shape (pairs,)."""
    explained: NDArray[np.float32]
    """Root mean square of what of the second view follows the first, shape (pairs,)."""


@dataclass(frozen=True, slots=True)
class _Strength:
    """How strong pictures are to the eye, in grey levels: roots of mean squares of their bands."""

    weights: NDArray[np.float32]
    """Of the views of the second: its tones, and how lively it is, which is weighted already."""
    first: float
    second: float

    @classmethod
    def of(cls, tones: Planes, seen_tones: Planes) -> "_Strength":
        """Of the tones of both, in bands."""
        weights = np.array([*SEEN[: len(seen_tones)], 1.0], np.float32)
        return cls(weights, _strength(tones), _strength(seen_tones))


def _strength(tones: Planes) -> float:
    """Of a picture's brightness or, where those are stronger, of its channels together."""
    roots = np.sqrt(np.square(tones[: len(SEEN)]).mean(axis=(2, 3)).sum(axis=1))
    return float(max(roots[0], np.linalg.norm(roots[1:] * SEEN[1 : len(roots)])))


def _strongest(
    compared: _Compared, strength: _Strength, bounds: Bounds, direction: Callable[[], float]
) -> Agreement:
    """Of the pair of views that agree most (within bounds, where one is) all but the contrast.

    `direction` is asked for where the two that are compared say how lively spots are.
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

    # Saturated tones agree well in what they coarsely show.
    order = (-means * sharpness).argsort(kind="stable")
    best = of_pair(int(order[0]))
    possible = (means >= bounds.mean) & (fine >= bounds.fine) & (sharpness >= bounds.sharpness)
    possible &= (visible >= bounds.visible) & (share >= bounds.share)
    others = (of_pair(int(n)) for n in order[1:] if possible[n])
    return next((one for one in itertools.chain([best], others) if bounds.hold(one)), best)


def _channels(views: Planes, theirs: Planes, side: int) -> float:
    """How far each channel follows a view, at least; finely, as any photographs agree coarsely by chance."""
    compared = _compare(theirs, views, list(itertools.product(range(3), range(len(views)))), side)
    weights = _structure(compared.energy)[:, :2]
    followed = _mean(compared.agreed[:, :2], weights, (1, 2, 3)).reshape(3, -1).max(axis=1)
    shown = weights.sum(axis=(1, 2, 3)).reshape(3, -1)[:, 0]
    return float(followed[shown >= SLIGHT * shown.max()].min())


def contrast(picture: NDArray[Any]) -> float:
    """Standard deviation of a picture's liveliest channel, in grey levels."""
    return float(cv2.meanStdDev(picture)[1].max())


def _tones(picture: Pixels, *, saturation: bool) -> list[Plane]:
    """Brightness, then the three channels and, if wanted, the saturation of a picture that has colours."""
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
    """Brightness and channels, each as strong as it is seen."""
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

    Or of four times the angle, where that is more: of crossing lines a derivative along one axis leaves those
    across it alone, a right angle away. Of brightness and channels, those count whose lines are most alike.
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
    """Lines where brightness, or any channel, changes most, as edge detectors draw them."""
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
    """Each plane in bands from fine to coarse, shape (n, bands, h, w); its shading is left out."""
    levels = [np.dstack(planes)]
    levels += [blurred(levels[0], max(0.6, share * side)) for share in BANDS]
    bands = np.stack([finer - coarser for finer, coarser in itertools.pairwise(levels)])
    return np.ascontiguousarray(np.moveaxis(bands, 3, 0))


def _compare(views: Planes, seen: Planes, pairs: list[tuple[int, int]], side: int) -> _Compared:
    """Pairs of views, as (number of the first's, number of the second's)."""
    down, across = (_window_matrix(length, side) for length in views.shape[2:])

    def pooled(values: Planes) -> Planes:
        return np.asarray(down @ values @ across.T, np.float32)

    mine, theirs = pooled(views * views), pooled(seen * seen)
    first, second = (list(places) for places in zip(*pairs, strict=True))
    shared = np.abs(pooled(views[first] * seen[second]))
    a, b = mine[first], theirs[second]
    agreed = shared / np.sqrt((a + NOISE) * (b + NOISE))
    # Of each band, how much of it is found again: the slope of a regression, without its sign.
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
    """What there is to see in each band of each window; nearly nothing where there is only noise."""
    return np.asarray(np.sqrt(np.maximum(energy - FAINTEST, 0) + 1e-4), np.float32)


def _mean(agreed: Planes, weights: Planes, axes: int | tuple[int, ...] | None) -> NDArray[np.float32]:
    """Correlation over some axes, weighted by structure."""
    return np.asarray((agreed * weights).sum(axis=axes) / weights.sum(axis=axes), np.float32)


def _worst(windows: NDArray[np.float32], total: NDArray[np.float32]) -> float:
    """The mean of the piece that agrees least, of those that hold something."""
    rows, columns = (length - PIECE + 1 for length in total.shape)
    # The anchor in the corner: the first `rows` x `columns` of the sums are whole pieces.
    agreed, structure = (
        cv2.boxFilter(plane, -1, (PIECE, PIECE), anchor=(0, 0))[:rows, :columns]
        for plane in (windows * total, total)
    )
    held = structure >= MATTERS * total.mean()
    return float((agreed[held] / structure[held]).min())


def _telling(lively: Planes, edges: Planes, side: int) -> NDArray[np.bool_]:
    """Which views of edges tell where the picture is busy: in fine hatching, detectors find nothing."""
    compared = _compare(lively, edges, [(0, n) for n in range(len(edges))], side)
    return np.asarray(_mean(compared.agreed, _structure(compared.energy), (1, 2, 3)) >= TELLING)

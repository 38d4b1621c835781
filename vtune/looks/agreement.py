"""Whether one picture shows what another shows, whatever honest enhancement lies between them.

Two pictures of one place, on one grid, are compared by their structure. Each gives several views: brightness,
its colours, its saturation, how lively each spot is, where its edges are. Each view is split into bands of
detail, and each band is correlated spot by spot, on a grid of windows; the sign does not count. The best pair
of views decides. So contrast, thresholds, negatives, false colours and edges keep their agreement, and what
is constant, blurred, shuffled or covered has none.
"""

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
"""Shape (h, w, 3)."""
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
WORST = 0.2
"""Share of a picture's structure that may agree less than `Agreement.floor`."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two pictures show the same. All values lie in [0, 1], but for `contrast`."""

    mean: float
    """Local correlation, averaged by the structure that the first picture has in each window."""
    floor: float
    """What all but `WORST` of that structure reaches: low where parts are covered."""
    sharpness: float
    """How much of the finer detail comes across, against the coarser: low where the second is blurred."""
    contrast: float
    """Standard deviation of the second picture's liveliest channel, in grey levels."""
    windows: NDArray[np.float32]
    """Local correlation, shape (rows, columns): `WINDOWS` each, or more along a strip."""
    weights: NDArray[np.float32]
    """Structure of the first picture in each window, of the same shape; they sum to 1."""


def span(height: int, width: int) -> int:
    """The length by which a picture's details and windows are measured: its longer side, less in a strip."""
    return round(min(max(height, width), LONG * min(height, width)))


def agreement(first: Pixels, second: Pixels) -> Agreement:
    """Compare two RGB pictures of one size, pixel by pixel in register."""
    tones, seen_tones = _tones(first, saturation=True), _tones(second, saturation=False)
    side = span(*first.shape[:2])
    lively = _activity(tones, side)
    mine = _bands([*tones, lively], side)
    theirs = _bands([*seen_tones, _activity(seen_tones, side)], side)
    energy, agreed, sharpness = _compare(mine, theirs, _pairs(len(tones), len(seen_tones)), side)
    found = _strongest(energy, agreed, sharpness)
    if found[0] < LINES_BELOW:
        edges = _bands(_edges(first), side)
        energy, agreed, sharpness = _compare(edges, theirs, [(n, 0) for n in range(len(edges))], side)
        agreed = np.minimum(LINES * agreed, 1.0) * _telling(mine[-1:], edges, side)[:, None, None, None]
        found = max(found, _strongest(energy, agreed, sharpness), key=lambda one: one[0])
    mean, windows, share, sharp = found
    return Agreement(
        mean=mean,
        floor=_floor(windows, share),
        sharpness=sharp,
        contrast=max(contrast(plane) for plane in seen_tones),
        windows=windows,
        weights=share,
    )


def _strongest(
    energy: Planes, agreed: Planes, sharpness: NDArray[np.float32]
) -> tuple[float, NDArray[np.float32], NDArray[np.float32], float]:
    """Of the pair of views that agree most: their mean, correlation and share by window, and sharpness."""
    local, total, means = _averaged(energy, agreed)
    best = int(means.argmax())
    share = total[best] / (total[best].sum() + 1e-6)
    return float(means[best]), local[best], share, float(sharpness[best])


def contrast(picture: NDArray[Any]) -> float:
    """Standard deviation of a picture's liveliest channel, in grey levels."""
    return float(cv2.meanStdDev(picture)[1].max())


def _tones(picture: Pixels, *, saturation: bool) -> list[Plane]:
    """Brightness, then the three channels and, if wanted, the saturation of a picture that has colours."""
    channels: list[Plane] = [np.asarray(plane, np.float32) for plane in cv2.split(picture)]
    red, green, blue = channels
    grey: Plane = np.asarray((red + green + blue) / 3, np.float32)
    most = cv2.max(red, cv2.max(green, blue))
    spread = most - cv2.min(red, cv2.min(green, blue))
    if cv2.mean(spread)[0] < COLOURED:
        return [grey]
    saturated = np.asarray(255 * spread / (most + 1), np.float32)
    return [grey, *channels, saturated] if saturation else [grey, *channels]


def _activity(tones: list[Plane], side: int) -> Plane:
    """How much the picture varies around each pixel, in its liveliest channel: hatching, print, edges."""
    planes = np.dstack(tones[:4])
    sigma = max(0.8, BANDS[0] * side)
    mean = _blurred(planes, sigma)
    varied = _blurred(planes * planes, sigma) - mean * mean
    return np.sqrt(np.maximum(functools.reduce(cv2.max, cv2.split(varied)), 0))


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
    levels += [_blurred(levels[0], max(0.6, share * side)) for share in BANDS]
    bands = np.stack([finer - coarser for finer, coarser in itertools.pairwise(levels)])
    return np.ascontiguousarray(np.moveaxis(bands, 3, 0))


def _compare(
    views: Planes, seen: Planes, pairs: list[tuple[int, int]], side: int
) -> tuple[Planes, Planes, NDArray[np.float32]]:
    """Energy of the first and correlation, both by window, and how much of the finer detail comes across."""
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
    return a, np.asarray(agreed, np.float32), np.minimum(slopes[:, 1] / (slopes[:, 2] + 1e-3), 1.0)


def _window_matrix(length: int, side: int) -> NDArray[np.float32]:
    """Weights of each pixel of a line in each window, shape (windows, length); each row sums to 1."""
    windows = max(WINDOWS, round(WINDOWS * length / side))
    centres = (np.arange(windows) + 0.5) * length / windows - 0.5
    distance = (np.arange(length) - centres[:, np.newaxis]) / (WINDOW * side)
    weights = np.exp(-0.5 * distance * distance)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)


def _averaged(energy: Planes, agreed: Planes) -> tuple[Planes, Planes, NDArray[np.float32]]:
    """Correlation by window, weighted by what there is to see in each band; those weights; and its mean."""
    weights = np.sqrt(energy)
    total = weights.sum(axis=1)
    local = (agreed * weights).sum(axis=1) / (total + 1e-6)
    return local, total, (local * total).sum(axis=(1, 2)) / (total.sum(axis=(1, 2)) + 1e-6)


def _telling(lively: Planes, edges: Planes, side: int) -> NDArray[np.bool_]:
    """Which views of edges tell where the picture is busy: in fine hatching, detectors find nothing."""
    energy, agreed, _ = _compare(lively, edges, [(0, n) for n in range(len(edges))], side)
    return np.asarray(_averaged(energy, agreed)[2] >= TELLING)


def _floor(local: NDArray[np.float32], share: NDArray[np.float32]) -> float:
    """The correlation that all but `WORST` of the structure reaches."""
    order = local.ravel().argsort()
    below = share.ravel()[order].cumsum()
    return float(local.ravel()[order[min(int(below.searchsorted(WORST)), len(order) - 1)]])


def _blurred(planes: NDArray[np.float32], sigma: float) -> NDArray[np.float32]:
    """Blur planes, shape (h, w, n); beyond 2.5 standard deviations nothing is left."""
    reach = 2 * math.ceil(2.5 * sigma) + 1
    blurred = cv2.GaussianBlur(planes, (reach, reach), sigma, borderType=cv2.BORDER_REFLECT)
    return np.asarray(blurred, np.float32).reshape(planes.shape)  # a single plane has lost its last axis

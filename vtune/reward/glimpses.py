"""Which targets lie in the regions that a call shows, and how large they appear there."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vtune.judge.pictures import picture_size, read_bytes
from vtune.looks.geometry import around, corners, covered, inverse
from vtune.looks.margins import showing
from vtune.looks.verify import LEGIBLE
from vtune.reward.looks import (
    ANSWERS,
    MOST_CLAIMS,
    SAME_REGION,
    claim_of,
    fingerprint,
    is_overview,
    made_by_code,
    pixels_of,
    pointing,
    region_within,
    seen,
)
from vtune.reward.recipe import EvidenceLevels
from vtune.schema.box import Box, area, intersect, iou
from vtune.schema.decoded import decoded
from vtune.schema.message import Picture
from vtune.schema.remembered import Remembered
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Call, Crop, Trajectory

CLOSER = 1.25
"""A crop within an overview is more than a mere piece of it if shown at least this many times as large per
side; ours. Claims may be off by 8 % and still be verified; the smallest zoom that models write is 1.5."""
AS_LARGE = 0.95
"""A target counts as no smaller if it has at least this many times its pixels per side in the question's
picture; ours: processors round the sides of a picture to multiples of 28."""


@dataclass(frozen=True, slots=True)
class Glimpse:
    """A target within a region that a call claims to show."""

    crop: Crop
    box: Box
    """The part of the target that the region holds, xyxy in pixels of the input."""
    share: float
    """Fraction of the target's box that the region holds, in [0, 1]."""
    size: float
    """Fraction of what the returned picture shows that this part takes up, in [0, 1]: see `_size`."""


def legible(trajectory: Trajectory, glimpse: Glimpse, side: float, levels: EvidenceLevels) -> bool:
    """Whether a target of `side` pixels, as the policy sees it, is legible and more than the question showed.

    It must have more pixels there than in the source, or `legible_side`, and never fewer than `LEGIBLE`.
    """
    before = _side(trajectory.images[glimpse.crop.image], area(glimpse.box))
    return side >= LEGIBLE and (side > before or side >= levels.legible_side)


def as_large(source: Picture, pixels: float, returned: Picture, taken: float) -> bool:
    """Whether something of `pixels` in the source and `taken` in the returned picture is no smaller there."""
    return _side(returned, taken) >= AS_LARGE * _side(source, pixels)


def _side(picture: Picture, pixels: float) -> float:
    """Square root of an area of a picture, in pixels as the policy sees it."""
    width, height = picture_size(picture)
    wide, high = picture.seen or (width, height)
    return math.sqrt(pixels * wide * high / (width * height))


def glimpses(sample: Sample, trajectory: Trajectory, k: int, levels: EvidenceLevels) -> list[Glimpse]:
    """Every target in every region that a returned picture of call `k` claims to show, best first.

    An overview beside a crop counts only for a target that fills it (`pointing`).
    """
    found = []
    claims = [crop for crop in trajectory.calls[k].crops if crop.shown is not None]
    if levels.looks == "claimed" or len(claims) <= MOST_CLAIMS:
        pointed = pointing(trajectory, k, levels)
        for crop in claims:
            for item in sample.evidence:
                if crop in pointed or area(item.bbox) >= levels.full_size * pixels_of(
                    trajectory.images[crop.image]
                ):
                    found += _glimpse(trajectory, k, crop, item, levels)
    return sorted(found, key=lambda glimpse: (glimpse.share, glimpse.size), reverse=True)


def _glimpse(
    trajectory: Trajectory, k: int, crop: Crop, item: Evidence, levels: EvidenceLevels
) -> list[Glimpse]:
    box = intersect(item.bbox, crop.bbox)
    if item.image != crop.image or area(box) == 0 or crop.shown is None:
        return []
    share = area(box) / area(item.bbox)
    if levels.looks == "claimed":
        return [Glimpse(crop, box, share, area(box) / area(crop.bbox))]
    there = _footprint(trajectory, crop, crop.shown, box)
    size = 0.0 if there is None else _size(trajectory, k, crop, crop.shown, box, covered(there), levels)
    return [Glimpse(crop, box, share, size)]


def _footprint(trajectory: Trajectory, crop: Crop, shown: int, box: Box) -> NDArray[np.float64] | None:
    """Corners, in a returned picture, of a box within a region that it shows; None if they are unknown."""
    claim = claim_of(crop, picture_size(trajectory.images[shown]))
    return None if claim is None else corners(box, inverse(claim))


def _size(
    trajectory: Trajectory, k: int, crop: Crop, shown: int, box: Box, taken: float, levels: EvidenceLevels
) -> float:
    """The fraction of what a returned picture shows that `taken` pixels of a target make up, in [0, 1].

    Blank margins show nothing, and axes next to nothing. They still count if the target takes up less than
    `partial_size` of the picture and is smaller than in the question's: a stamp on a large canvas.
    """
    picture = trajectory.images[shown]
    of_picture = min(1.0, taken / pixels_of(picture))
    large = as_large(trajectory.images[crop.image], area(box), picture, taken)
    # A share of `full_size` needs no costly measurement, and the blank margins of a stamp count.
    if of_picture >= levels.full_size or (of_picture < levels.partial_size and not large):
        return of_picture
    return min(1.0, of_picture / showing_share(trajectory, k, crop, levels))


def showing_share(trajectory: Trajectory, k: int, crop: Crop, levels: EvidenceLevels) -> float:
    """Fraction of a returned picture of call `k` that shows something, as seen from one crop, in (0, 1].

    A region counts once, however often it is shown, and overviews that show where the crop lies do not count.
    They have to be what they claim to be: what is not verified counts as shown. If nothing shows anything, 1:
    a claim may lie outside its picture.

    Args:
        trajectory: With its pictures.
        k: Index of the call.
        crop: One of its crops; `shown` must not be None.
        levels: Those of the recipe.

    Raises:
        DataError: If a picture cannot be read.
    """
    if crop.shown is None:
        raise ValueError("nothing shows this crop")
    call = trajectory.calls[k]
    beside = [other for other in call.crops if other.shown == crop.shown and other is not crop]
    if crop.matrix is None and not beside:
        return 1.0  # it fills its picture
    shown, picture = crop.shown, trajectory.images[crop.shown]
    claims = tuple((one.image, one.bbox, one.matrix) for one in (crop, *beside))
    facts = [
        (fingerprint(read_bytes(trajectory.images[image])), made_by_code(trajectory, image))
        for image, _, _ in claims
    ]
    key = (
        fingerprint(read_bytes(picture)),
        picture.seen,
        claims,
        *facts,
        call.tool,
        levels.model_dump_json(),
    )
    return _shares.get(key, lambda: _showing(trajectory, k, crop, shown, levels) / pixels_of(picture)) or 1.0


_shares: Remembered[tuple[Any, ...], float] = Remembered(ANSWERS, lambda key, _: 1)
"""Results of `showing_share`, keyed by everything that they depend on: each target and judge asks again."""


def _showing(trajectory: Trajectory, k: int, crop: Crop, shown: int, levels: EvidenceLevels) -> float:
    """Pixels of a returned picture of call `k` that show something (see `showing_share`)."""
    call = trajectory.calls[k]
    regions: list[tuple[int, Box]] = []
    counted: list[NDArray[np.float64]] = []
    passed_over: list[NDArray[np.float64]] = []
    beside = [other for other in call.crops if other.shown == shown and other is not crop]
    for one in (crop, *beside):
        region = region_within(trajectory, k, one)
        there = _footprint(trajectory, one, shown, region)
        if there is None:
            return float(pixels_of(trajectory.images[shown]))
        repeats = any(one.image == image and iou(region, box) >= SAME_REGION for image, box in regions)
        if one is crop:
            again = False
        elif not _believed(trajectory, call, one):
            if repeats:
                continue  # e.g. its edges: as much detail as the region itself
            again = False  # otherwise an overview beneath it would excuse it
        elif is_overview(trajectory, k, one, levels):
            again = not _is_piece(trajectory, crop, one, shown)
        else:
            again = repeats
        (passed_over if again else counted).append(there)
        if not again:
            regions.append((one.image, region))
    return showing(decoded(read_bytes(trajectory.images[shown])), counted, passed_over)


def _believed(trajectory: Trajectory, call: Call, crop: Crop) -> bool:
    """Whether a returned picture shows a region, or all of it except what something else covers."""
    checked = seen(trajectory, call, crop, crop.bbox)
    return checked.look == "verified" or checked.partly


def _is_piece(trajectory: Trajectory, crop: Crop, overview: Crop, shown: int) -> bool:
    """Whether a crop lies within an overview, no larger than there: then nothing has been cut out."""
    inner = _footprint(trajectory, crop, shown, crop.bbox)
    outer = _footprint(trajectory, overview, shown, overview.bbox)
    if inner is None or outer is None:
        return True
    within = area(intersect(around(inner), around(outer))) >= area(around(inner)) / 2
    closer = covered(inner) / area(crop.bbox) >= CLOSER**2 * covered(outer) / area(overview.bbox)
    return within and not closer

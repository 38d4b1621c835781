"""Which input regions a call lets the policy see: claimed, verified, legible and pointed.

A call claims regions (`Crop`). A claim is believed if the returned pixels agree with the region
(`vtune.looks`), if the policy gets enough pixels to read it, and if the call points at something: a call that
shows everything has not looked.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from vtune.judge.pictures import picture_size, read_bytes
from vtune.looks.geometry import Map, around, corners, covered, inverse, map_of, onto
from vtune.looks.pictures import viewed
from vtune.looks.verify import LEGIBLE, Checked, check
from vtune.reward.recipe import EvidenceLevels
from vtune.schema.box import Box, area, clamp, intersect, iou
from vtune.schema.decoded import decoded
from vtune.schema.message import Picture
from vtune.schema.remembered import Remembered
from vtune.schema.sample import Evidence
from vtune.schema.trajectory import Call, Crop, Trajectory
from vtune.tools.python import NAME as PYTHON

MOST_CLAIMS = 32
"""Limit on the regions that one call may claim; beyond it none is believed: such a mosaic is not a look."""
WIDER = 1.2
"""The rest of a picture is examined too if its area is at least this many times the claimed one."""
UPRIGHT = 0.98
"""A picture counts as upright if its corners enclose more than this fraction of their bounding box; ours."""
REMEMBERED = 64 << 20
"""Bytes of encoded pictures whose fingerprints are cached; ours."""
ANSWERS = 1 << 16
"""Size of the cache of comparisons; ours. Flags and judges repeat those of `with_looks`, and so do rollouts
of a group that show the same."""
SAME_REGION = 0.8
"""IoU from which two regions count as one that a picture shows twice, say plain and enhanced; ours.
A crop in the middle of a wider one is a different region."""
SAME_PLACE = 0.5
"""IoU of two regions' places in a returned picture from which it cannot show both; ours."""
NEARLY_ALL = 0.9
"""Fraction of a picture from which a claim is of all of it; ours."""
CELLS = 128
"""Cells per side of the raster on which the union of regions is computed."""


def with_looks(trajectory: Trajectory, levels: EvidenceLevels) -> Trajectory:
    """The trajectory with `Crop.look` filled in: every claim is checked against the pixels.

    Raises:
        DataError: If one of its pictures cannot be read.
    """
    if levels.looks == "claimed":
        return trajectory
    return replace(trajectory, calls=tuple(_looked(trajectory, call) for call in trajectory.calls))


def _looked(trajectory: Trajectory, call: Call) -> Call:
    if sum(crop.shown is not None for crop in call.crops) > MOST_CLAIMS:
        crops = tuple(crop if crop.shown is None else replace(crop, look="unverified") for crop in call.crops)
        return replace(call, crops=crops)
    crops = tuple(
        crop if crop.shown is None else replace(crop, look=seen(trajectory, call, crop, crop.bbox).look)
        for crop in call.crops
    )
    return replace(call, crops=crops)


def seen(trajectory: Trajectory, call: Call, crop: Crop, box: Box) -> Checked:
    """Whether the picture that a crop points to shows a box within the crop's region.

    Args:
        trajectory: With its pictures.
        call: The call that made the claim.
        crop: The claim; `shown` must not be None.
        box: In pixels of the source picture.

    Raises:
        DataError: If a picture cannot be read.
    """
    if crop.shown is None:
        raise ValueError("nothing shows this crop")
    if made_by_code(trajectory, crop.image):
        return Checked("unverified", "cut out of a picture that code has made", 0.0)
    returned, source = trajectory.images[crop.shown], trajectory.images[crop.image]
    claim = claim_of(crop, picture_size(returned))
    if claim is None:
        return Checked("unverified", "its map has no way back", 0.0)
    box = clamp(box, *picture_size(source))
    if area(box) == 0:
        return Checked("unverified", "it lies outside of its picture", 0.0)
    if _contested(trajectory, call, crop):
        return Checked("unverified", "another region is claimed in the same place", 0.0)
    data, shown = read_bytes(source), read_bytes(returned)
    key = (fingerprint(data), fingerprint(shown), returned.seen, claim.tobytes(), box)
    checked = _checked.get(key, lambda: check(decoded(data), viewed(shown, returned.seen), claim, box))
    if checked.look == "unverified" and call.tool != PYTHON:
        return replace(checked, look="verified", why="our own tool has cut it out")
    return checked


def claim_of(crop: Crop, size: tuple[int, int]) -> Map | None:
    """Map from a returned picture of `size` pixels to the source picture; None if it is not invertible."""
    return onto(crop.bbox, size) if crop.matrix is None else map_of(crop.matrix)


def fingerprint(data: bytes) -> bytes:
    """Key of an encoded picture in the caches."""
    return _fingerprints.get(data, lambda: blake2b(data, digest_size=16).digest())


_fingerprints: Remembered[bytes, bytes] = Remembered(REMEMBERED, lambda data, _: len(data))

_checked: Remembered[tuple[bytes, bytes, tuple[int, int] | None, bytes, Box], Checked] = Remembered(
    ANSWERS, lambda key, _: 1
)
"""Results of checked claims, keyed by source picture, returned picture and its seen size, map and box."""


def _contested(trajectory: Trajectory, call: Call, crop: Crop) -> bool:
    """Whether another region is claimed in the same place of a returned picture.

    Blended pixels agree with each of several crops, so one picture would show them all. An overview that
    a crop is drawn on does not count, nor does the same region claimed twice.
    """
    return any(
        other.shown == crop.shown
        and other is not crop
        and not (other.image == crop.image and iou(other.bbox, crop.bbox) >= SAME_REGION)
        and not any(_claims_all(trajectory, one) for one in (crop, other))
        and _overlap(trajectory, crop, other) >= SAME_PLACE
        for other in call.crops
    )


def _claims_all(trajectory: Trajectory, crop: Crop) -> bool:
    """Whether a claim is of (nearly) all of its source picture."""
    return area(crop.bbox) >= NEARLY_ALL * pixels_of(trajectory.images[crop.image])


def _overlap(trajectory: Trajectory, one: Crop, other: Crop) -> float:
    """IoU of two regions' places in the returned picture that shows both; 0 if a map is not invertible."""
    boxes = []
    for crop in (one, other):
        claim = None if crop.shown is None else claim_of(crop, picture_size(trajectory.images[crop.shown]))
        there = None if claim is None else corners(crop.bbox, inverse(claim))
        if there is None:
            return 0.0
        boxes.append(around(there))
    return iou(*boxes)


def made_by_code(trajectory: Trajectory, image: int) -> bool:
    """Whether a picture was returned by the policy's own code, and so may show anything."""
    return any(image in call.images for call in trajectory.calls if call.tool == PYTHON)


def shows_everything(
    trajectory: Trajectory, k: int, targets: Sequence[Evidence], levels: EvidenceLevels
) -> bool:
    """Whether the regions of call `k` together cover too much of an input to be a look at anything.

    More than `most_of_input` is too much, unless a target fills them as it must fill a crop (`full_size`) and
    lies in one of them (`full_share`): tiles of a large target are not a look at it.
    """
    if levels.looks == "claimed":
        return False
    return any(
        share > levels.most_of_input
        and not any(
            item.image == image
            and area(item.bbox) >= levels.full_size * share * pixels_of(picture)
            and _in_one_piece(item, crops, levels)
            for item in targets
        )
        for image, picture, share, crops in laid_out(trajectory, k, levels)
    )


def _in_one_piece(item: Evidence, crops: Iterable[Crop], levels: EvidenceLevels) -> bool:
    """Whether one shown region contains as much of a target as a full look must."""
    return any(
        crop.shown is not None
        and crop.image == item.image
        and area(intersect(item.bbox, crop.bbox)) >= levels.full_share * area(item.bbox)
        for crop in crops
    )


def region_shown(trajectory: Trajectory, call: Call, crop: Crop) -> Box:
    """The region that a returned picture shows: the claimed one, or more if the picture continues around it.

    Code may claim half of a picture but return the whole.

    Args:
        trajectory: With its pictures.
        call: The call that made the claim.
        crop: The claim; `shown` must not be None.

    Raises:
        DataError: If a picture cannot be read.
    """
    if crop.shown is None:
        raise ValueError("nothing shows this crop")
    size = picture_size(trajectory.images[crop.shown])
    claim = claim_of(crop, size)
    there = None if claim is None or call.tool != PYTHON else corners((0, 0, *size), claim)
    if there is None:
        return crop.bbox
    wide = clamp(around(there), *picture_size(trajectory.images[crop.image]))
    # A rotated picture does not fill the bounding box of its corners.
    upright = covered(there) > UPRIGHT * area(around(there))
    if not upright or area(wide) < WIDER * area(crop.bbox):
        return crop.bbox
    return wide if seen(trajectory, call, crop, wide).look == "verified" else crop.bbox


def laid_out(
    trajectory: Trajectory, k: int, levels: EvidenceLevels
) -> Iterator[tuple[int, Picture, float, list[Crop]]]:
    """For each picture that call `k` points at: (its index, the picture, the fraction shown, its regions)."""
    by_image: dict[int, list[Crop]] = {}
    for crop in pointing(trajectory, k, levels):
        by_image.setdefault(crop.image, []).append(crop)
    for image, crops in by_image.items():
        picture = trajectory.images[image]
        boxes = [region_within(trajectory, k, crop) for crop in crops]
        yield image, picture, _union(boxes, picture_size(picture)), crops


def pointing(trajectory: Trajectory, k: int, levels: EvidenceLevels) -> list[Crop]:
    """The shown regions of call `k` that count.

    Overviews, regions that are (nearly) all of a picture, are dropped beside a verified crop of the same
    picture: they show where it lies. A strip or a crop that shows nothing does not excuse an overview.

    Args:
        trajectory: With `Crop.look` filled in.
        k: Index of the call.
        levels: Those of the recipe.
    """
    shown = [crop for crop in trajectory.calls[k].crops if crop.shown is not None]
    if levels.looks == "claimed" or len(shown) < 2 or len(shown) > MOST_CLAIMS:
        return shown
    overviews = [crop for crop in shown if is_overview(trajectory, k, crop, levels)]
    pointed = {
        crop.image
        for crop in shown
        if crop.look == "verified" and crop not in overviews and _shorter_side(crop.bbox) >= LEGIBLE
    }
    return [crop for crop in shown if crop not in overviews or crop.image not in pointed]


def _shorter_side(box: Box) -> float:
    return min(box[2] - box[0], box[3] - box[1])


def is_overview(trajectory: Trajectory, k: int, crop: Crop, levels: EvidenceLevels) -> bool:
    """Whether a returned picture of call `k` shows (nearly) all of a source picture."""
    whole = pixels_of(trajectory.images[crop.image])
    return area(region_within(trajectory, k, crop)) >= levels.whole_image_share * whole


def region_within(trajectory: Trajectory, k: int, crop: Crop) -> Box:
    """The region that a returned picture shows, clamped to its source picture."""
    size = picture_size(trajectory.images[crop.image])
    return clamp(region_shown(trajectory, trajectory.calls[k], crop), *size)


def pixels_of(picture: Picture) -> int:
    """Number of pixels of a picture, as stored."""
    width, height = picture_size(picture)
    return width * height


def _union(boxes: Sequence[Box], size: tuple[int, int]) -> float:
    """The fraction of a picture that boxes cover together, computed on a raster."""
    raster = np.zeros((CELLS, CELLS), bool)
    for x0, y0, x1, y1 in boxes:
        columns = slice(max(0, round(x0 / size[0] * CELLS)), max(0, round(x1 / size[0] * CELLS)))
        raster[max(0, round(y0 / size[1] * CELLS)) : max(0, round(y1 / size[1] * CELLS)), columns] = True
    return float(raster.mean())

"""Which regions of the inputs a call lets the policy see: claimed, verified, legible and pointed.

A call claims regions (`Crop`). A claim is believed where the pixels that were returned agree with the region
(`vtune.looks`), where the policy gets enough of them to read it, and where the call points at something: one
that shows everything has not looked.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vtune.judge.pictures import picture_size, read_bytes
from vtune.looks.geometry import Map, around, corners, covered, inverse, map_of, onto
from vtune.looks.margins import showing
from vtune.looks.pictures import viewed
from vtune.looks.verify import LEGIBLE, Checked, check
from vtune.reward.recipe import EvidenceLevels
from vtune.schema.box import Box, area, clamp, intersect, iou
from vtune.schema.decoded import decoded
from vtune.schema.message import Picture
from vtune.schema.remembered import Remembered
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Call, Crop, Trajectory
from vtune.tools.python import NAME as PYTHON

MOST_CLAIMS = 32
"""Regions that one call may claim to show: beyond, none is looked at: a mosaic of that size is not a look."""
WIDER = 1.2
"""Times the area that is claimed, from which on the rest of a picture is looked at too."""
UPRIGHT = 0.98
"""Share of the box around a picture's corners that they enclose, from which on it is not turned; ours."""
REMEMBERED = 64 << 20
"""Bytes of encoded pictures, of comparisons that are not made again: flags and judges ask again for what
`with_looks` has seen, and rollouts of a group show the same. Ours."""
SAME_REGION = 0.8
"""IoU of two regions from which on they are one that a picture shows twice, say plain and enhanced; ours.
A crop in the midst of a wider one is another."""
CLOSER = 1.25
"""Times as large per side that a crop within an overview must be shown to be no mere piece of it; ours.
Claims may be off by 8 % and still be verified, the smallest zoom that models write is 1.5."""
AS_LARGE = 0.95
"""Times its pixels per side in the question's picture that make a target no smaller; ours: processors round
the sides of a picture to multiples of 28."""
CELLS = 128
"""Cells a side of the raster on which regions are laid together."""


@dataclass(frozen=True, slots=True)
class Glimpse:
    """A target within a region that a call claims to show."""

    crop: Crop
    box: Box
    """The part of the target that the region holds, xyxy in pixels of the input."""
    share: float
    """Of the target's box that the region holds, in [0, 1]."""
    size: float
    """Of what the returned picture shows that this part takes up, in [0, 1]: see `_size`."""


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
        call: Whose crop it is.
        crop: The claim; a returned picture must be named.
        box: In pixels of the picture that was cropped.

    Raises:
        DataError: If a picture cannot be read.
    """
    if crop.shown is None:
        raise ValueError("nothing shows this crop")
    if _made_by_code(trajectory, crop.image):
        return Checked("unverified", "cut out of a picture that code has made", 0.0)
    returned = trajectory.images[crop.shown]
    shown = read_bytes(returned)
    view = viewed(shown, returned.seen)
    claim = _claim(crop, (view.pixels.shape[1], view.pixels.shape[0]))
    if claim is None:
        return Checked("unverified", "its map has no way back", 0.0)
    data = read_bytes(trajectory.images[crop.image])
    source = decoded(data)
    box = clamp(box, source.shape[1], source.shape[0])
    if area(box) == 0:
        return Checked("unverified", "it lies outside of its picture", 0.0)
    key = (data, shown, returned.seen, claim.tobytes(), box)
    checked = _checked.get(key, lambda: check(source, view, claim, box))
    if checked.look == "unverified" and call.tool != PYTHON:
        return replace(checked, look="verified", why="our own tool has cut it out")
    return checked


def _claim(crop: Crop, size: tuple[int, int]) -> Map | None:
    """From a returned picture of `size` pixels to the picture that was cropped; None without a way back."""
    return onto(crop.bbox, size) if crop.matrix is None else map_of(crop.matrix)


_checked: Remembered[tuple[bytes, bytes, tuple[int, int] | None, bytes, Box], Checked] = Remembered(
    REMEMBERED, lambda key, _: len(key[0]) + len(key[1])
)
"""What came of claims, by what decides on it: picture, returned picture and how it is seen, map and box."""


def _made_by_code(trajectory: Trajectory, image: int) -> bool:
    """Whether a picture is what the policy's own code returned, and so may show anything."""
    return any(image in call.images for call in trajectory.calls if call.tool == PYTHON)


def legible(trajectory: Trajectory, glimpse: Glimpse, side: float, levels: EvidenceLevels) -> bool:
    """Whether a target of `side` pixels, as the policy sees it, is worth more than the question's picture.

    It has more pixels there than it had in that picture, or `legible_side`, and never less than `LEGIBLE`.
    """
    before = _side(trajectory.images[glimpse.crop.image], area(glimpse.box))
    return side >= LEGIBLE and (side > before or side >= levels.legible_side)


def _side(picture: Picture, pixels: float) -> float:
    """The root of some pixels of a picture, at the size at which the policy sees it."""
    width, height = picture_size(picture)
    wide, high = picture.seen or (width, height)
    return math.sqrt(pixels * wide * high / (width * height))


def glimpses(sample: Sample, trajectory: Trajectory, k: int, levels: EvidenceLevels) -> list[Glimpse]:
    """Every target in every region that a returned picture of call `k` is said to show, the best first.

    An overview beside a crop counts only for a target that fills it (`pointing`).
    """
    found = []
    claims = [crop for crop in trajectory.calls[k].crops if crop.shown is not None]
    if levels.looks == "claimed" or len(claims) <= MOST_CLAIMS:
        pointed = pointing(trajectory, k, levels)
        for crop in claims:
            for item in sample.evidence:
                if crop in pointed or area(item.bbox) >= levels.full_size * _pixels(
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
    """Corners, in a returned picture, of a box within a region that it shows; None where nobody can say."""
    claim = _claim(crop, picture_size(trajectory.images[shown]))
    return None if claim is None else corners(box, inverse(claim))


def _size(
    trajectory: Trajectory, k: int, crop: Crop, shown: int, box: Box, taken: float, levels: EvidenceLevels
) -> float:
    """Of what a returned picture shows, the share that `taken` pixels of a target are, in [0, 1].

    Blank margins show nothing, nor do axes to speak of. They count all the same where they leave a target
    less than `partial_size` of the picture, and smaller than in the question's: a stamp on a large canvas.
    """
    picture = trajectory.images[shown]
    of_picture = min(1.0, taken / _pixels(picture))
    before = _side(trajectory.images[crop.image], area(box))
    if of_picture < levels.partial_size and _side(picture, taken) < AS_LARGE * before:
        return of_picture
    return max(of_picture, min(1.0, taken / _showing(trajectory, k, crop, shown, levels)))


def _showing(trajectory: Trajectory, k: int, crop: Crop, shown: int, levels: EvidenceLevels) -> float:
    """Pixels of a returned picture of call `k` that show something, seen from one of its crops.

    A region counts once, however often it is shown, and overviews that say where the crop lies do not. They
    have to be what they claim to be: what is not verified counts as it is.
    """
    call = trajectory.calls[k]
    regions: list[tuple[int, Box]] = []
    counted: list[NDArray[np.float64]] = []
    passed_over: list[NDArray[np.float64]] = []
    beside = [other for other in call.crops if other.shown == shown and other is not crop]
    for one in (crop, *beside):
        region = _region(trajectory, k, one)
        there = _footprint(trajectory, one, shown, region)
        if there is None:
            return float(_pixels(trajectory.images[shown]))
        if one is crop:
            again = False
        elif not _believed(trajectory, call, one):
            continue
        elif _is_overview(trajectory, k, one, levels):
            again = not _is_piece(trajectory, crop, one, shown)
        else:
            again = any(one.image == image and iou(region, box) >= SAME_REGION for image, box in regions)
        (passed_over if again else counted).append(there)
        if not again:
            regions.append((one.image, region))
    return showing(decoded(read_bytes(trajectory.images[shown])), counted, passed_over)


def _believed(trajectory: Trajectory, call: Call, crop: Crop) -> bool:
    """Whether a returned picture shows a region, or all of it but what something else covers."""
    checked = seen(trajectory, call, crop, crop.bbox)
    return checked.look == "verified" or checked.partly


def _is_piece(trajectory: Trajectory, crop: Crop, overview: Crop, shown: int) -> bool:
    """Whether a crop lies within an overview, no larger than there: nothing has been cut out then."""
    inner = _footprint(trajectory, crop, shown, crop.bbox)
    outer = _footprint(trajectory, overview, shown, overview.bbox)
    if inner is None or outer is None:
        return True
    within = area(intersect(around(inner), around(outer))) >= area(around(inner)) / 2
    closer = covered(inner) / area(crop.bbox) >= CLOSER**2 * covered(outer) / area(overview.bbox)
    return within and not closer


def shows_everything(
    trajectory: Trajectory, k: int, targets: Sequence[Evidence], levels: EvidenceLevels
) -> bool:
    """Whether the regions of call `k` together are too much of an input to be a look at anything.

    More than `most_of_input`, unless a target fills them as it must fill a crop (`full_size`) and lies in one
    of them (`full_share`): tiles of a large one are not a look at it.
    """
    if levels.looks == "claimed":
        return False
    return any(
        share > levels.most_of_input
        and not any(
            item.image == image
            and area(item.bbox) >= levels.full_size * share * _pixels(picture)
            and _in_one_piece(item, crops, levels)
            for item in targets
        )
        for image, picture, share, crops in laid_out(trajectory, k, levels)
    )


def _in_one_piece(item: Evidence, crops: Iterable[Crop], levels: EvidenceLevels) -> bool:
    """Whether one shown region holds as much of a target as a full look must."""
    return any(
        crop.shown is not None
        and crop.image == item.image
        and area(intersect(item.bbox, crop.bbox)) >= levels.full_share * area(item.bbox)
        for crop in crops
    )


def region_shown(trajectory: Trajectory, call: Call, crop: Crop) -> Box:
    """The region that a returned picture shows: what is claimed, or more where its rest continues around it.

    Code may claim half of a picture and return the whole.

    Args:
        trajectory: With its pictures.
        call: Whose crop it is.
        crop: The claim; a returned picture must be named.

    Raises:
        DataError: If a picture cannot be read.
    """
    if crop.shown is None:
        raise ValueError("nothing shows this crop")
    size = picture_size(trajectory.images[crop.shown])
    claim = _claim(crop, size)
    there = None if claim is None or call.tool != PYTHON else corners((0, 0, *size), claim)
    if there is None:
        return crop.bbox
    wide = clamp(around(there), *picture_size(trajectory.images[crop.image]))
    # A turned picture has corners that show nothing of the box around it.
    upright = covered(there) > UPRIGHT * area(around(there))
    if not upright or area(wide) < WIDER * area(crop.bbox):
        return crop.bbox
    return wide if seen(trajectory, call, crop, wide).look == "verified" else crop.bbox


def laid_out(
    trajectory: Trajectory, k: int, levels: EvidenceLevels
) -> Iterator[tuple[int, Picture, float, list[Crop]]]:
    """For each picture that call `k` points at: its index, itself, the share that is shown, its regions."""
    by_image: dict[int, list[Crop]] = {}
    for crop in pointing(trajectory, k, levels):
        by_image.setdefault(crop.image, []).append(crop)
    for image, crops in by_image.items():
        picture = trajectory.images[image]
        boxes = [_region(trajectory, k, crop) for crop in crops]
        yield image, picture, _union(boxes, picture_size(picture)), crops


def pointing(trajectory: Trajectory, k: int, levels: EvidenceLevels) -> list[Crop]:
    """The shown regions of call `k` that count.

    Overviews, regions that are (nearly) the whole of a picture, are left out beside a verified crop of it:
    they say where it lies. Nothing else excuses them: neither a strip nor a crop that shows nothing.

    Args:
        trajectory: With `Crop.look` filled in.
        k: Number of the call.
        levels: Of the recipe.
    """
    shown = [crop for crop in trajectory.calls[k].crops if crop.shown is not None]
    if levels.looks == "claimed" or len(shown) < 2 or len(shown) > MOST_CLAIMS:
        return shown
    overviews = [crop for crop in shown if _is_overview(trajectory, k, crop, levels)]
    pointed = {
        crop.image
        for crop in shown
        if crop.look == "verified" and crop not in overviews and _shorter_side(crop.bbox) >= LEGIBLE
    }
    return [crop for crop in shown if crop not in overviews or crop.image not in pointed]


def _shorter_side(box: Box) -> float:
    return min(box[2] - box[0], box[3] - box[1])


def _is_overview(trajectory: Trajectory, k: int, crop: Crop, levels: EvidenceLevels) -> bool:
    """Whether what a returned picture of call `k` shows is (nearly) the whole of a picture."""
    whole = _pixels(trajectory.images[crop.image])
    return area(_region(trajectory, k, crop)) >= levels.whole_image_share * whole


def _region(trajectory: Trajectory, k: int, crop: Crop) -> Box:
    """The region that a returned picture shows, within its picture."""
    size = picture_size(trajectory.images[crop.image])
    return clamp(region_shown(trajectory, trajectory.calls[k], crop), *size)


def _pixels(picture: Picture) -> int:
    width, height = picture_size(picture)
    return width * height


def _union(boxes: Sequence[Box], size: tuple[int, int]) -> float:
    """The share of a picture that boxes cover together, on a raster."""
    raster = np.zeros((CELLS, CELLS), bool)
    for x0, y0, x1, y1 in boxes:
        columns = slice(max(0, round(x0 / size[0] * CELLS)), max(0, round(x1 / size[0] * CELLS)))
        raster[max(0, round(y0 / size[1] * CELLS)) : max(0, round(y1 / size[1] * CELLS)), columns] = True
    return float(raster.mean())

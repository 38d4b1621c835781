"""Red flags: calls that are not looks, by what they did, never by thoughts or code (CodeV §4.3).

Operations on a whole picture (rotation, contrast, a drawn box, a filter) are legitimate: template 13.1 asks
for them. So a region counts as a mere crop only if the returned picture shows it unchanged, at any size.
"""

from collections.abc import Iterator, Sequence, Set

from vtune.judge.pictures import picture_size, same_picture, shows_unchanged
from vtune.reward.looks import laid_out, pointing, region_shown, seen, shows_everything
from vtune.reward.recipe import EvidenceLevels
from vtune.reward.searches import SEARCHES
from vtune.schema.box import Box, area, intersect, iou
from vtune.schema.message import Picture
from vtune.schema.sample import Evidence
from vtune.schema.trajectory import Call, Crop, Flag, Status, Trajectory
from vtune.tools.python import NAME as PYTHON

WHOLE_IMAGE: Flag = "whole_image"
"""Flag for a call that shows (nearly) the whole picture as a mere crop."""

MAGNIFIED = 1.25
"""A region shown before counts as a closer look if it has at least this many times as many pixels per side,
as the policy sees them; ours: re-encoding and rounded edges stay below it, and the smallest zoom that models
write (1.5) is above."""

AVOIDABLE: tuple[Status, ...] = ("error", "blocked", "timeout", "killed")
"""Statuses that are the model's own fault: neither our failures nor limits that it could not know."""


def call_flags(
    trajectory: Trajectory,
    k: int,
    levels: EvidenceLevels,
    targets: Sequence[Evidence] = (),
    again: Set[int] = frozenset(),
) -> tuple[Flag, ...]:
    """The red flags of call `k`, in a fixed order.

    `whole_image`: it shows (nearly) the whole picture as a mere crop, e.g. the input saved again, or as
    several regions that together cover it. An altered overview beside a verified crop does not count.
    `repeated_crop`: it shows a mere crop that an earlier call showed, and no larger. `repeated_search`: it
    repeats an earlier search. `scratchpad`: it otherwise returns a picture that already existed; not for
    searches, which do not choose what they find. `sandbox_error`: its code failed, was refused, timed out or
    exited. `bad_call`: it asked a tool for something impossible, or was not a tool call at all. A call is not
    flagged for returning nothing or for hitting a sandbox limit (status `limit`), and a call that our sandbox
    failed is never flagged (CodeV §4.3: avoidable errors). `faked`: it claims a region of which its pictures
    show nothing, not even a target in it, whatever else they show. `illegible`: it shows all its regions with
    too few pixels. `everything`: it shows more of an input than a look may. These last three apply only if
    the recipe says so.

    Args:
        trajectory: With `Crop.look` filled in (`vtune.reward.looks.with_looks`).
        k: Index of the call.
        levels: Those of the recipe.
        targets: What the question is about, if known.
        again: Indices of the calls that repeat a search (`vtune.reward.searches`).

    Raises:
        DataError: If a picture of the trajectory cannot be read.
    """
    call = trajectory.calls[k]
    if call.status == "infra":
        return ()
    whole, repeated = whole_images(trajectory, k, levels), _repeated(trajectory, k, levels)
    flags: list[Flag] = []
    if whole or _contact_sheet(trajectory, k, levels):
        flags.append(WHOLE_IMAGE)
    if repeated:
        flags.append("repeated_crop")
    if k in again:
        flags.append("repeated_search")
    others = [index for index in call.images if index not in whole | repeated]
    if call.tool not in SEARCHES and _copies(trajectory, k, others, levels):
        flags.append("scratchpad")
    if call.status in AVOIDABLE:
        flags.append("sandbox_error" if call.tool == PYTHON else "bad_call")
    return (*flags, *_unseen(trajectory, k, levels, targets))


def _contact_sheet(trajectory: Trajectory, k: int, levels: EvidenceLevels) -> bool:
    """Whether several regions of one call together make up (nearly) a whole picture."""
    return levels.looks == "verified" and any(
        share >= levels.whole_image_share and len(crops) > 1
        for _, _, share, crops in laid_out(trajectory, k, levels)
    )


def _unseen(
    trajectory: Trajectory, k: int, levels: EvidenceLevels, targets: Sequence[Evidence]
) -> Iterator[Flag]:
    """What a call did instead of showing a region, if the recipe flags it."""
    call = trajectory.calls[k]
    crops = pointing(trajectory, k, levels)
    looks = {crop.look for crop in crops if crop.look is not None}
    verified = [crop for crop in crops if crop.look == "verified"]
    if levels.faked == "red_flag" and any(
        crop.look == "faked"
        and not any(_holds(one, crop, levels) for one in verified)
        and not any(_shows(trajectory, call, crop, item, levels) for item in targets)
        for crop in crops
    ):
        yield "faked"
    if levels.illegible == "red_flag" and looks == {"illegible"}:
        yield "illegible"
    if levels.everything == "red_flag" and shows_everything(trajectory, k, targets, levels):
        yield "everything"


def _holds(shown: Crop, faked: Crop, levels: EvidenceLevels) -> bool:
    """Whether a verified region contains a faked one: an edge image beside its crop, say, fakes nothing."""
    common = area(intersect(shown.bbox, faked.bbox))
    return shown.image == faked.image and common >= levels.full_share * area(faked.bbox)


def _shows(trajectory: Trajectory, call: Call, crop: Crop, item: Evidence, levels: EvidenceLevels) -> bool:
    """Whether a target can still be seen: thresholding keeps the glyph, but not the card around it."""
    box = intersect(item.bbox, crop.bbox)
    return (
        crop.shown is not None
        and item.image == crop.image
        and area(box) >= levels.full_share * area(item.bbox)
        and seen(trajectory, call, crop, box).look == "verified"
    )


def whole_images(trajectory: Trajectory, k: int, levels: EvidenceLevels) -> frozenset[int]:
    """Pictures of call `k`, as indices into the trajectory's, that show a (near) whole picture unchanged."""
    found = set()
    for shown, crop in _shown(trajectory, k).items():
        width, height = picture_size(trajectory.images[crop.image])
        region = (
            crop.bbox if levels.looks == "claimed" else region_shown(trajectory, trajectory.calls[k], crop)
        )
        if area(region) >= levels.whole_image_share * width * height and shows_unchanged(
            trajectory.images[shown], trajectory.images[crop.image], region
        ):
            found.add(shown)
    return frozenset(found)


def no_looks(trajectory: Trajectory, k: int, levels: EvidenceLevels) -> frozenset[int]:
    """Pictures of call `k`, as indices, that are a whole picture unchanged, or existed before."""
    whole = whole_images(trajectory, k, levels)
    others = [index for index in trajectory.calls[k].images if index not in whole]
    return whole | _copies(trajectory, k, others, levels)


def _copies(
    trajectory: Trajectory, k: int, pictures_of_k: Sequence[int], levels: EvidenceLevels
) -> frozenset[int]:
    """Those of the given pictures of call `k` that look like an input or like a picture from an earlier call.

    If regions are known, they must agree too: two patches of clear sky look the same but are two looks.
    """
    pictures = trajectory.images
    before: dict[int, tuple[int, Box] | None] = {}
    for index, picture in enumerate(pictures):
        if picture.origin == "input":
            width, height = picture_size(picture)
            before[index] = (index, (0.0, 0.0, float(width), float(height)))
    for j, earlier in enumerate(trajectory.calls[:k]):
        places = {shown: (crop.image, crop.bbox) for shown, crop in _shown(trajectory, j).items()}
        before |= {index: places.get(index) for index in earlier.images}
    own = {shown: (crop.image, crop.bbox) for shown, crop in _shown(trajectory, k).items()}
    return frozenset(
        index
        for index in pictures_of_k
        if any(
            index != old
            and _may_agree(own.get(index), place, levels.repeated_iou)
            and same_picture(pictures[index], pictures[old])
            for old, place in before.items()
        )
    )


def _may_agree(a: tuple[int, Box] | None, b: tuple[int, Box] | None, least: float) -> bool:
    """Whether two regions are the same, as far as they are known."""
    return a is None or b is None or (a[0] == b[0] and iou(a[1], b[1]) >= least)


def _repeated(trajectory: Trajectory, k: int, levels: EvidenceLevels) -> frozenset[int]:
    """Pictures of call `k` that show a region unchanged, and no larger than an earlier call showed it."""
    earlier = [(crop, shown) for j in range(k) for shown, crop in _shown(trajectory, j).items()]
    return frozenset(
        shown
        for shown, crop in _shown(trajectory, k).items()
        if any(
            _may_agree((crop.image, crop.bbox), (old.image, old.bbox), levels.repeated_iou)
            and _side(trajectory.images[shown]) < MAGNIFIED * _side(trajectory.images[before])
            and _unchanged(trajectory, crop, shown)
            and _unchanged(trajectory, old, before)
            for old, before in earlier
        )
    )


def _side(picture: Picture) -> float:
    """Square root of a picture's area, in pixels as the policy sees it."""
    width, height = picture.seen or picture_size(picture)
    return float((width * height) ** 0.5)


def _unchanged(trajectory: Trajectory, crop: Crop, shown: int) -> bool:
    return shows_unchanged(trajectory.images[shown], trajectory.images[crop.image], crop.bbox)


def _shown(trajectory: Trajectory, k: int) -> dict[int, Crop]:
    """The crop that each picture of call `k` shows, if known, by the picture's index."""
    return {crop.shown: crop for crop in trajectory.calls[k].crops if crop.shown is not None}

"""The chance level of an audit: how often the same looks would have shown another question's target.

Two calls that show half of a picture each show any target: faithful, but blind. A look that was made for its
question shows the targets of other questions far more rarely. Neither CodeV nor its Table 5 has this number;
it is ours.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

from vtune.judge.pictures import picture_size
from vtune.looks.geometry import corners, covered, map_of
from vtune.reward.flags import WHOLE_IMAGE, whole_images
from vtune.reward.glimpses import as_large, showing_share
from vtune.reward.looks import MOST_CLAIMS, laid_out, pixels_of
from vtune.reward.recipe import EvidenceLevels
from vtune.schema.box import Box, area, intersection
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Crop, Trajectory

OTHERS = 16
"""Limit on the number of other questions that looks are compared with; ours."""
FEWEST = 8
"""Fewest other questions for which a chance level is reported; ours."""

LITTLE = 0.5
"""Fraction of the limits on showing too much of a picture. If the areas of a call's regions add up to less,
they cannot exceed a limit even without overlap, so the union, the slowest step by far, is not computed;
ours."""

BY_ANOTHER = "not judged by boxes"
TOO_FEW = f"of a source with fewer than {FEWEST} other questions with boxes"


@dataclass(frozen=True, slots=True)
class Target:
    """An evidence box."""

    image: int
    """Index into the question's pictures."""
    box: Box
    """As fractions of the picture's width and height."""


@dataclass(frozen=True, slots=True)
class Look:
    """A region that a call claims to show."""

    image: int
    box: Box
    """As fractions of the picture's width and height."""
    spans: float
    """Fraction of the source picture that would fill the returned one; infinite if it counts as showing
    nothing."""
    shows: float
    """Fraction of the returned picture that shows something (`vtune.reward.glimpses.showing_share`)."""
    as_large: bool
    """Whether the policy sees the region no smaller there than in the question's picture."""
    pointed: bool
    """False for an overview beside a crop, which counts only for a target that fills it."""


@dataclass(frozen=True, slots=True)
class CallLooks:
    """What a call shows, without its pixels."""

    looks: tuple[Look, ...]
    large: tuple[tuple[int, float], ...]
    """Pictures of which it shows more than `most_of_input`, each with the fraction shown."""


class Held(Protocol):
    """What the chance level needs to know about an audited trajectory."""

    @property
    def sample_id(self) -> str:
        """ID of the sample that it answers."""
        ...

    @property
    def source(self) -> str:
        """Only questions from the same source are compared."""
        ...

    @property
    def cluster(self) -> str:
        """Questions in the same cluster may share a target, so they are not compared with each other."""
        ...

    @property
    def any_faithful(self) -> bool | None:
        """Whether a call shows a target; None if unscored."""
        ...

    @property
    def looks(self) -> tuple[CallLooks, ...] | None:
        """Those of its calls; None if a judge other than boxes decided what they show."""
        ...

    @property
    def targets(self) -> tuple[Target, ...]:
        """The evidence boxes of its question."""
        ...


def targets_of(sample: Sample, trajectory: Trajectory) -> tuple[Target, ...]:
    """The evidence boxes of a question, in fractions of the picture's size.

    Raises:
        DataError: If a picture cannot be read.
    """
    return tuple(
        Target(item.image, _relative(item.bbox, picture_size(trajectory.images[item.image])))
        for item in sample.evidence
        if item.image < len(trajectory.images)
    )


def looks_of(trajectory: Trajectory, levels: EvidenceLevels) -> tuple[CallLooks, ...]:
    """What its calls claim to show, if the policy saw it.

    Args:
        trajectory: With red flags filled in, so that pixels need not be compared again.
        levels: Those of the recipe.

    Raises:
        DataError: If a picture cannot be read.
    """
    calls = enumerate(trajectory.calls)
    return tuple(_looks(trajectory, k, levels) for k, call in calls if call.crops and not call.unseen)


def _looks(trajectory: Trajectory, k: int, levels: EvidenceLevels) -> CallLooks:
    call = trajectory.calls[k]
    claims = [(crop, crop.shown) for crop in call.crops if crop.shown is not None]
    verified = levels.looks == "verified"
    if verified and len(claims) > MOST_CLAIMS:
        return CallLooks((), ())
    whole = whole_images(trajectory, k, levels) if WHOLE_IMAGE in call.flags else frozenset()
    looks, covers = [], 0.0
    for crop, shown in claims:
        width, height = picture_size(trajectory.images[crop.image])
        box = _relative(crop.bbox, (width, height))
        filling = _spans(trajectory, crop, shown, verified=verified)
        spans = filling / (width * height)
        shows, no_smaller = 1.0, True
        if verified:
            returned = trajectory.images[shown]
            shows = showing_share(trajectory, k, crop, levels)
            no_smaller = as_large(trajectory.images[crop.image], filling, returned, pixels_of(returned))
        looks.append(Look(crop.image, box, inf if shown in whole else spans, shows, no_smaller, pointed=True))
        covers += max(area(box), spans)
    if not verified or covers <= LITTLE * min(levels.most_of_input, levels.whole_image_share):
        return CallLooks(tuple(looks), ())
    laid = list(laid_out(trajectory, k, levels))
    pointed = [crop for _, _, _, crops in laid for crop in crops]
    marked = (replace(one, pointed=crop in pointed) for one, (crop, _) in zip(looks, claims, strict=True))
    large = tuple((image, share) for image, _, share, _ in laid if share > levels.most_of_input)
    return CallLooks(tuple(marked), large)


def _spans(trajectory: Trajectory, crop: Crop, shown: int, *, verified: bool) -> float:
    """Area of the source picture that would fill the returned one, in pixels."""
    if crop.matrix is None or not verified:
        return area(crop.bbox)
    claim = map_of(crop.matrix)
    there = None if claim is None else corners((0, 0, *picture_size(trajectory.images[shown])), claim)
    return inf if there is None else covered(there)


def shows(call: CallLooks, targets: Iterable[Target], levels: EvidenceLevels) -> bool:
    """Whether a call would show one of these targets, by the box judge's rules except those about pixels."""
    targets = list(targets)
    for image, share in call.large:  # see `vtune.reward.looks.shows_everything`
        filling = [one for one in targets if one.image == image]
        filling = [one for one in filling if area(one.box) >= levels.full_size * share]
        pieces = [look for look in call.looks if look.image == image and look.pointed]
        if not any(_held(one, look) >= levels.full_share for one in filling for look in pieces):
            return False
    return any(
        look.image == one.image
        and (look.pointed or area(one.box) >= levels.full_size)
        and _held(one, look) >= levels.target_share
        and _size(one, look, levels) >= levels.partial_size
        for look in call.looks
        for one in targets
    )


def _size(target: Target, look: Look, levels: EvidenceLevels) -> float:
    """Size of a target in the returned picture, as the box judge measures it."""
    of_picture = intersection(target.box, look.box) / look.spans
    return of_picture if of_picture < levels.partial_size and not look.as_large else of_picture / look.shows


def _held(target: Target, look: Look) -> float:
    """Fraction of a target that a region contains."""
    return intersection(target.box, look.box) / area(target.box)


def chances(rows: Sequence[Held], levels: EvidenceLevels) -> list[float | str]:
    """For each trajectory, the fraction of other questions of its source whose targets its looks would have
    shown.

    Up to `OTHERS` other questions are sampled from those that the rows answer, seeded with the trajectory's
    sample id: the result depends neither on the order of the rows nor on which judge audited them. The box of
    another question keeps its relative place and size on this question's picture; if its picture index is
    higher than any with a box here, that last picture is used. A trajectory without looks shows nothing by
    chance.

    Args:
        rows: All rows of the audit.
        levels: Those of the recipe.

    Returns:
        Fractions in [0, 1], or a reason why there is none.
    """
    sources: dict[str, dict[str, Held]] = {}
    for row in rows:
        if row.targets and row.looks is not None:
            sources.setdefault(row.source, {}).setdefault(row.sample_id, row)
    pools = {source: _Pool(held) for source, held in sources.items()}
    return [_chance(row, pools.get(row.source), levels) for row in rows]


class _Pool:
    """The questions of one source, for sampling."""

    def __init__(self, held: Mapping[str, Held]) -> None:
        self._rows = [held[name] for name in sorted(held)]
        self._alike = Counter(row.cluster for row in self._rows)

    def others(self, row: Held) -> list[Held]:
        count = min(len(self._rows), OTHERS + self._alike[row.cluster])
        drawn = random.Random(row.sample_id).sample(self._rows, count)
        return [other for other in drawn if other.cluster != row.cluster][:OTHERS]


def _chance(row: Held, pool: _Pool | None, levels: EvidenceLevels) -> float | str:
    if row.looks is None or row.any_faithful is None:
        return BY_ANOTHER
    if not row.looks:
        return 0.0
    others = [] if pool is None else pool.others(row)
    if len(others) < FEWEST:
        return TOO_FEW
    last = max((one.image for one in row.targets), default=0)
    hits = 0
    for other in others:
        targets = [Target(min(one.image, last), one.box) for one in other.targets]
        hits += any(shows(call, targets, levels) for call in row.looks)
    return hits / len(others)


def _relative(box: Box, size: tuple[int, int]) -> Box:
    width, height = size
    return box[0] / width, box[1] / height, box[2] / width, box[3] / height

"""What counterfactual re-runs show in place of what calls showed: the exchanges, by name."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

import numpy as np
from PIL import Image

from vtune.data import lens_exchange
from vtune.judge.pictures import picture_size, read_bytes
from vtune.looks.exchange import carried, cut, inpainted, recoloured, region
from vtune.looks.geometry import Map, map_of, onto
from vtune.metrics.counterfactual import SHOWN
from vtune.rollout.agent import black
from vtune.schema.box import Box, intersection
from vtune.schema.decode import png_of
from vtune.schema.decoded import Pixels, decoded
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Crop, Trajectory

TRIES = 32
"""How many random regions are sampled; the one that overlaps least with what was seen is used; ours."""

WITHHELD = "withheld"
"""The exchange that lets the policy answer instead of making its first call."""


@dataclass(frozen=True, slots=True)
class Scene:
    """An answer to regenerate."""

    sample: Sample
    trajectory: Trajectory
    others: Sequence[tuple[Sample, Trajectory]]
    """Other questions of its source, with different right answers, that have a target to lend (`lends`)."""
    rng: random.Random

    @property
    def looks(self) -> list[int]:
        """Pictures that calls returned."""
        return returned_by(self.trajectory)


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown in place of a trajectory's pictures."""

    images: Mapping[int, bytes]
    """Keyed by the index of the picture that each one replaces."""
    gold: str | None = None
    """The ground truth for what is shown now; None if the right answer does not change."""
    same: bool = False
    """What the calls showed is unchanged, so the answer cannot change either."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """There is nothing to show; the text says why."""

    why: str


Exchange = Callable[[Scene], Shown | Unknown]


def shown(scene: Scene) -> Shown | Unknown:
    """The same pictures: this measures what regeneration alone changes."""
    return Shown({})


def blackened(scene: Scene) -> Shown | Unknown:
    """Black pictures."""
    return Shown({number: black(_bytes(scene, number)) for number in scene.looks})


def random_regions(scene: Scene) -> Shown | Unknown:
    """Regions of the same size, elsewhere in the same pictures."""
    found = {}
    for number in scene.looks:
        size = picture_size(scene.trajectory.images[number])
        crop = _crop(scene, number)
        source = 0 if crop is None else crop.image
        pixels = _pixels(scene, source)
        bounds = pixels.shape[1], pixels.shape[0]
        seen = [] if crop is None else [crop.bbox]
        seen += [item.bbox for item in scene.sample.evidence if item.image == source]
        wide, high = size if crop is None else _sides(crop.bbox)
        draws = [
            region((scene.rng.uniform(0, bounds[0]), scene.rng.uniform(0, bounds[1])), (wide, high), bounds)
            for _ in range(TRIES)
        ]
        box = min(draws, key=lambda one: sum(intersection(one, other) for other in seen))
        found[number] = png_of(cut(pixels, box, size))
    return Shown(found)


def of_another(scene: Scene) -> Shown | Unknown:
    """The target of another question with a different right answer."""
    if not scene.others:
        return Unknown("no other question of its source has another answer, and a box or a look")
    sample, trajectory = scene.rng.choice(list(scene.others))
    found = {}
    for number in scene.looks:
        size = picture_size(scene.trajectory.images[number])
        crop = _crop(scene, number)
        if sample.evidence:
            item = sample.evidence[0]
            pixels = decoded(read_bytes(trajectory.images[item.image]))
            sides = _sides(item.bbox) if crop is None else _sides(crop.bbox)
            box = region(_middle(item.bbox), _holding(sides, item.bbox), (pixels.shape[1], pixels.shape[0]))
            found[number] = png_of(cut(pixels, box, size))
            continue
        picture = Image.fromarray(decoded(read_bytes(trajectory.images[returned_by(trajectory)[-1]])))
        found[number] = png_of(np.asarray(picture.resize(size, Image.Resampling.BICUBIC)))
    return Shown(found, gold=_as_truth_of(scene.sample, truth_of(sample)))


def returned_by(trajectory: Trajectory) -> list[int]:
    """Pictures that calls returned, as indices into the trajectory's images."""
    return [number for call in trajectory.calls for number in call.images]


def lends(sample: Sample, trajectory: Trajectory) -> bool:
    """Whether a rollout of a question has something that can be shown as its target: a box or a look."""
    return bool(sample.evidence or returned_by(trajectory))


def truth_of(sample: Sample) -> str:
    """The right answer in words: the same letter means something else in another question."""
    truth = sample.ground_truth
    at = ascii_uppercase.find(truth) if len(truth) == 1 else -1
    return sample.choices[at] if 0 <= at < len(sample.choices) else truth


def answers_differ(one: Sample, other: Sample) -> bool:
    """Whether two questions have different right answers; a letter counts as the option that it names."""
    return truth_of(one).casefold().strip() != truth_of(other).casefold().strip()


def _as_truth_of(sample: Sample, truth: str) -> str | None:
    """The ground truth that would express `truth` in a question; None if it is not among its options."""
    if not sample.choices:
        return truth
    options = [option.casefold().strip() for option in sample.choices[: len(ascii_uppercase)]]
    found = truth.casefold().strip()
    return ascii_uppercase[options.index(found)] if found in options else None


def without_target(scene: Scene) -> Shown | Unknown:
    """The target painted over from its surroundings (needs evidence boxes)."""
    return _edited(scene, lambda pixels, box: inpainted(pixels, box))


def with_other_colours(scene: Scene) -> Shown | Unknown:
    """The target in other colours (needs evidence boxes): for questions about colours."""
    return _edited(scene, lambda pixels, box: recoloured(pixels, box))


def with_other_glyph(scene: Scene) -> Shown | Unknown:
    """Another digit on the sign of a lens puzzle, which changes the right answer."""
    sample = scene.sample
    if not lens_exchange.is_puzzle(sample):
        return Unknown("only lens puzzles can be drawn again with another digit")
    redrawn = lens_exchange.exchanged(sample, _pixels(scene, sample.evidence[0].image), scene.rng)
    if redrawn is None:
        return Unknown("its sign does not show the digit of the sample")
    pixels, digit = redrawn
    return _edited(scene, lambda before, box: pixels, gold=digit)


def _edited(
    scene: Scene, edit: Callable[[Pixels, Box], Pixels], *, gold: str | None = None
) -> Shown | Unknown:
    """The returned pictures, with an edit of the target in the question's own picture carried over."""
    if not scene.sample.evidence:
        return Unknown("no evidence boxes")
    found: dict[int, bytes] = {}
    for number in scene.looks:
        placed = _placed(scene, number)
        if placed is None:
            return Unknown("it is not known of which region a picture is")
        image, way = placed
        returned = decoded(_bytes(scene, number))
        for item in scene.sample.evidence:
            if item.image == image:
                changed = carried(edit(_pixels(scene, image), item.bbox), returned, way, item.bbox)
                returned = returned if changed is None else changed
                if changed is not None:
                    found[number] = png_of(returned)
    return Shown(found, gold=gold if found else None, same=not found)


def _placed(scene: Scene, number: int) -> tuple[int, Map] | None:
    """The picture that a returned one shows a region of, and the map from its pixels to that picture's."""
    crop = _crop(scene, number)
    if crop is None:
        return None
    size = picture_size(scene.trajectory.images[number])
    way = onto(crop.bbox, size) if crop.matrix is None else map_of(crop.matrix)
    return None if way is None else (crop.image, way)


def _crop(scene: Scene, number: int) -> Crop | None:
    """The region of the question's own pictures that a returned picture shows, if that claim is trusted."""
    inputs = len(scene.sample.images)
    return next(
        (
            crop
            for call in scene.trajectory.calls
            for crop in call.crops
            if crop.shown == number and crop.image < inputs and crop.look not in ("unverified", "faked")
        ),
        None,
    )


def _bytes(scene: Scene, number: int) -> bytes:
    return read_bytes(scene.trajectory.images[number])


def _pixels(scene: Scene, number: int) -> Pixels:
    return decoded(_bytes(scene, number))


def _sides(box: Box) -> tuple[float, float]:
    return box[2] - box[0], box[3] - box[1]


def _middle(box: Box) -> tuple[float, float]:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def _holding(sides: tuple[float, float], box: Box) -> tuple[float, float]:
    """Sides in the same proportion, large enough for a box."""
    wide, high = _sides(box)
    scale = max(1.0, wide / sides[0], high / sides[1])
    return sides[0] * scale, sides[1] * scale


EXCHANGES: Mapping[str, Exchange | None] = {
    SHOWN: shown,
    "black": blackened,
    "random": random_regions,
    "other": of_another,
    "inpaint": without_target,
    "recolor": with_other_colours,
    "glyph": with_other_glyph,
    WITHHELD: None,
}
"""Name on the command line -> what is shown; None: the policy answers instead of making its first call."""

"""COCO instance annotations to samples: two kinds of questions about real photographs.

*Which object is in this region* gives a pixel box and four categories; its evidence is that box. *How many
X are there* is answered by a number; its evidence is the boxes of all X. The kinds alternate. Regions go
round the categories and counts round the answers, so neither persons nor ones rule the file.
"""

import json
import random
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import ceil, floor
from pathlib import Path
from string import ascii_uppercase
from typing import Any, TypeVar

from PIL import Image, UnidentifiedImageError

from vtune.data.traces import look_trace
from vtune.errors import DataError
from vtune.schema.box import Box, clamp
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Trajectory

MIN_SIDE = 16
"""Shortest side, in pixels, of a box worth asking about (ours)."""
CHOICES = 4
TOOL_RATIO = 0.5
"""Weight of the evidence reward, as in the lens puzzles (ours)."""


@dataclass(frozen=True, slots=True)
class _Photo:
    identity: int
    file_name: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class _Thing:
    identity: int
    category: str
    box: Box


@dataclass(frozen=True, slots=True)
class _Scene:
    """One photograph and what is annotated on it."""

    photo: _Photo
    things: tuple[_Thing, ...]
    uncountable: frozenset[str]
    """Categories with a crowd or a tiny instance here: nobody can say how many there are."""


Question = tuple[_Scene, tuple[_Thing, ...]]
"""A photograph and the things that a question is about."""


def coco_traces(samples: Iterable[Sample]) -> Iterator[Trajectory]:
    """A cold-start trace for each sample: it crops the first evidence box and answers right."""
    for sample in samples:
        x0, y0, x1, y1 = sample.evidence[0].bbox
        yield look_trace(sample, (floor(x0), floor(y0), ceil(x1), ceil(y1)))


def coco_samples(instances: Path, images: Path, *, limit: int | None, seed: int) -> Iterator[Sample]:
    """Samples of an annotated folder of photographs; the same arguments give the same samples.

    Args:
        instances: An `instances_*.json` of COCO. Crowds and boxes under 16 px a side ask nothing.
        images: The folder of its photographs. Their own bytes go into the samples.
        limit: At most so many samples, regions and counts in turn; None for all.
        seed: Shuffles questions and options.

    Raises:
        DataError: If the JSON or a photograph is missing, broken or of another size than it says.
    """
    rng = random.Random(seed)
    scenes, categories = _scenes(instances)
    regions = [(scene, (thing,)) for scene in scenes for thing in scene.things]
    counts = [group for scene in scenes for group in _countable(scene)]
    by_category = _round_robin(regions, [things[0].category for _, things in regions], rng)
    by_answer = _round_robin(counts, [len(things) for _, things in counts], rng)
    for number, (kind, question) in enumerate(_in_turn(by_category, by_answer)):
        if number == limit:
            return
        yield _region(question, categories, images, rng) if kind == 0 else _count(question, images)


def _region(question: Question, categories: Sequence[str], images: Path, rng: random.Random) -> Sample:
    scene, (thing,) = question
    # Categories that are nowhere in the picture: the region may well show a part of a neighbour.
    present = {other.category for other in scene.things} | scene.uncountable
    absent = [category for category in categories if category not in present]
    options = [thing.category, *rng.sample(absent, min(CHOICES - 1, len(absent)))]
    rng.shuffle(options)
    letter = ascii_uppercase[options.index(thing.category)]
    listed = "\n".join(f"{mark}. {option}" for mark, option in zip(ascii_uppercase, options, strict=False))
    corners = ", ".join(str(round(side)) for side in thing.box)
    return _sample(
        question,
        images,
        identity=f"coco_region/{thing.identity}",
        source="coco_region",
        ability="visual_search",
        text=f"Which object is in the region [{corners}] (x0, y0, x1, y1 in pixels)?\n{listed}",
        ground_truth=letter,
        answer=thing.category,
        verifier="choice",
        choices=tuple(options),
    )


def _count(question: Question, images: Path) -> Sample:
    scene, things = question
    category, number = things[0].category, str(len(things))
    return _sample(
        question,
        images,
        identity=f"coco_count/{scene.photo.identity}/{category}",
        source="coco_count",
        ability="counting",
        text=f"How many instances of the category '{category}' are there? Answer with a number.",
        ground_truth=number,
        answer=number,
        verifier="exact",
    )


def _sample(
    question: Question,
    images: Path,
    *,
    identity: str,
    source: str,
    ability: str,
    text: str,
    ground_truth: str,
    answer: str,
    verifier: str,
    choices: tuple[str, ...] = (),
) -> Sample:
    scene, things = question
    return Sample(
        id=identity,
        source=source,
        prompt=(Message("user", f"{IMAGE}\n{text}", (0,)),),
        images=(Picture(data=_photograph(scene.photo, images)),),
        ability=ability,
        ground_truth=ground_truth,
        answer=answer,
        verifier=verifier,
        tool_ratio=TOOL_RATIO,
        tools=("python",),
        evidence=tuple(Evidence(thing.category, 0, thing.box) for thing in things),
        choices=choices,
        extra={"image_path": scene.photo.file_name},
    )


def _scenes(instances: Path) -> tuple[list[_Scene], list[str]]:
    """The photographs with their things, by id, and all category names."""
    content = _read(instances)
    try:
        categories = {entry["id"]: str(entry["name"]) for entry in content["categories"]}
        photos = {
            entry["id"]: _Photo(
                entry["id"], str(entry["file_name"]), int(entry["width"]), int(entry["height"])
            )
            for entry in content["images"]
        }
        things: dict[int, list[_Thing]] = defaultdict(list)
        uncountable: dict[int, set[str]] = defaultdict(set)
        for entry in content["annotations"]:
            photo, category = photos[entry["image_id"]], categories[entry["category_id"]]
            x, y, width, height = entry["bbox"]
            box = clamp((x, y, x + width, y + height), photo.width, photo.height)
            if entry.get("iscrowd") or min(box[2] - box[0], box[3] - box[1]) < MIN_SIDE:
                uncountable[photo.identity].add(category)
            else:
                things[photo.identity].append(_Thing(entry["id"], category, box))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"not the layout of COCO instances: {type(error).__name__} {error}",
            where=str(instances),
            fix="it needs images, annotations and categories that refer to each other by id",
        ) from None
    scenes = [
        _Scene(photo, tuple(things[identity]), frozenset(uncountable[identity]))
        for identity, photo in sorted(photos.items())
    ]
    return scenes, sorted(categories.values())


def _read(instances: Path) -> Any:
    try:
        return json.loads(instances.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(
            f"cannot read {instances}: {error.strerror}", fix="give an instances_*.json of COCO"
        ) from None
    except ValueError as error:
        raise DataError(f"not JSON: {error}", where=str(instances), fix="download the file again") from None


def _photograph(photo: _Photo, images: Path) -> bytes:
    path = images / photo.file_name
    try:
        content = path.read_bytes()
        with Image.open(BytesIO(content)) as picture:
            size = picture.size
    except UnidentifiedImageError:
        raise DataError("not an image", where=str(path), fix="download the file again") from None
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror}", fix="give the folder that the JSON is about"
        ) from None
    if size != (photo.width, photo.height):
        raise DataError(
            f"the picture is {size[0]}x{size[1]} and the JSON says {photo.width}x{photo.height}",
            where=str(path),
            fix="use the pictures as COCO publishes them: the boxes are in their pixels",
        )
    return content


def _countable(scene: _Scene) -> Iterator[Question]:
    groups: dict[str, list[_Thing]] = defaultdict(list)
    for thing in scene.things:
        groups[thing.category].append(thing)
    for category, things in groups.items():
        if category not in scene.uncountable:
            yield scene, tuple(things)


T = TypeVar("T")


def _round_robin(items: Sequence[T], keys: Sequence[Hashable], rng: random.Random) -> list[T]:
    """All items, shuffled, one of each key in turn for as long as there are any."""
    heaps: dict[Hashable, list[T]] = defaultdict(list)
    for item, key in zip(items, keys, strict=True):
        heaps[key].append(item)
    for heap in heaps.values():
        rng.shuffle(heap)
    order = list(heaps.values())
    rng.shuffle(order)
    most = max(map(len, order), default=0)
    return [heap[turn] for turn in range(most) for heap in order if turn < len(heap)]


def _in_turn(*kinds: Sequence[T]) -> Iterator[tuple[int, T]]:
    """(kind, item), one of each kind in turn, until all are used."""
    for turn in range(max(map(len, kinds), default=0)):
        for kind, items in enumerate(kinds):
            if turn < len(items):
                yield kind, items[turn]

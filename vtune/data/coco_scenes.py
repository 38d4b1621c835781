"""COCO instance annotations as scenes: photographs and what is annotated on them."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from vtune.data.folders import within
from vtune.data.formats.source import read_json
from vtune.errors import DataError
from vtune.schema.box import Box, clamp

MIN_SIDE = 16
"""Shortest side, in pixels, of a box worth asking about (ours)."""


@dataclass(frozen=True, slots=True)
class Photo:
    """An entry of `images`."""

    identity: int
    file_name: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Thing:
    """An annotation that can be asked about."""

    identity: int
    category: str
    box: Box
    """xyxy in pixels, inside the photograph."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One photograph and what is annotated on it."""

    photo: Photo
    things: tuple[Thing, ...]
    uncountable: frozenset[str]
    """Categories with a crowd or a tiny instance here: nobody can say how many there are."""


Question = tuple[Scene, tuple[Thing, ...]]
"""A photograph and the things that a question is about."""


def read_scenes(
    instances: Path, odd: list[tuple[int, DataError]] | None = None
) -> tuple[list[Scene], list[str]]:
    """The photographs with their things, by id, and all category names.

    Args:
        instances: An `instances_*.json`. Crowds and boxes under 16 px a side are things of no question.
        odd: Gets each annotation that cannot be read, as (number, error); None: the first is raised.

    Raises:
        DataError: If the file is missing or has another layout.
    """
    content = read_json(instances)
    try:
        categories = {entry["id"]: str(entry["name"]) for entry in content["categories"]}
        photos = {
            entry["id"]: Photo(
                entry["id"], str(entry["file_name"]), int(entry["width"]), int(entry["height"])
            )
            for entry in content["images"]
        }
        annotations = list(content["annotations"])
    except (KeyError, TypeError, ValueError) as error:
        raise _no_layout(instances, error) from None
    things: dict[int, list[Thing]] = defaultdict(list)
    uncountable: dict[int, set[str]] = defaultdict(set)
    for number, entry in enumerate(annotations):
        try:
            photo, category = photos[entry["image_id"]], categories[entry["category_id"]]
            # Until its box is known, nobody can say how many there are.
            skipped = uncountable[photo.identity]
            uncountable[photo.identity] = skipped | {category}
            x, y, width, height = entry["bbox"]
            box = clamp((x, y, x + width, y + height), photo.width, photo.height)
            if not entry.get("iscrowd") and min(box[2] - box[0], box[3] - box[1]) >= MIN_SIDE:
                things[photo.identity].append(Thing(entry["id"], category, box))
                uncountable[photo.identity] = skipped
        except (KeyError, TypeError, ValueError) as error:
            if odd is None:
                raise _no_layout(instances, error) from None
            odd.append((number, _no_annotation(error)))
    scenes = [
        Scene(photo, tuple(things[identity]), frozenset(uncountable[identity]))
        for identity, photo in sorted(photos.items())
    ]
    return scenes, sorted(categories.values())


def _no_layout(instances: Path, error: Exception) -> DataError:
    return DataError(
        f"not the layout of COCO instances: {type(error).__name__} {error}",
        where=str(instances),
        fix="it needs images, annotations and categories that refer to each other by id",
    )


def _no_annotation(error: Exception) -> DataError:
    return DataError(
        f"an annotation cannot be read: {type(error).__name__} {error}",
        where="`annotations`",
        fix="it needs id, image_id, category_id and bbox [x, y, width, height]; mend or drop it",
    )


def photograph(photo: Photo, images: Path) -> bytes:
    """The bytes of a photograph's file.

    Raises:
        DataError: If it is missing, damaged, outside of the folder, or of another size than the JSON says.
    """
    path = within(images, photo.file_name)
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


def countable(scene: Scene) -> Iterator[Question]:
    """All things of each category whose number is certain."""
    groups: dict[str, list[Thing]] = defaultdict(list)
    for thing in scene.things:
        groups[thing.category].append(thing)
    for category, things in groups.items():
        if category not in scene.uncountable:
            yield scene, tuple(things)

"""COCO instance annotations as scenes: photographs with what is annotated on them.

V3Det and Objects365 are published in the same layout, with additional fields: see `read_scenes`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from vtune.data.folders import within
from vtune.data.formats.source import read_json
from vtune.errors import DataError
from vtune.files.reading import read_bytes
from vtune.schema.box import Box, clamp
from vtune.schema.pixels import Refused, examine

DOUBTFUL = ("iscrowd", "isfake", "isreflected")
"""Flags on annotations that may or may not count; the last two are specific to Objects365."""
MIN_SIDE = 16
"""Shortest side, in pixels, of a box worth asking about (ours)."""
OUTSIDE = 0.1
"""Share of a box's area that may lie outside its picture and is cut off: published boxes overshoot by a pixel
or a few. A box with a larger share outside counts as wrong (ours)."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Photo:
    """An entry of `images`."""

    identity: str
    file_name: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Thing:
    """An annotation that can be asked about."""

    identity: str
    category: str
    box: Box
    """xyxy in pixels, inside the photograph."""
    novel: bool = False
    """Whether its category is among those that V3Det reserves for open-vocabulary detection (`novel`)."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One photograph and its annotations."""

    photo: Photo
    things: tuple[Thing, ...]
    uncountable: frozenset[str]
    """Categories with a crowd, a tiny instance, or a picture or mirror image of an instance here: their count
    is uncertain."""


TWICE = "boxes that stand there twice"
"""Why an annotation does not count as a separate thing."""
Question = tuple[Scene, tuple[Thing, ...]]
"""A photograph and the things that a question is about."""


def read_scenes(
    instances: Path,
    odd: list[tuple[int, DataError]] | None = None,
    passed_over: Counter[str] | None = None,
) -> tuple[list[Scene], list[str]]:
    """The photographs with their things, by id, and all category names.

    Names are stripped and spelled in one way: verifiers ignore case, and V3Det has both `Timer` and `timer`.
    Identical boxes of the same category on one photograph count as one thing: Objects365 has many.

    Args:
        instances: An `instances_*.json`. Crowds, boxes under 16 px a side, and what Objects365 calls fake (a
            picture of the thing) or reflected are not asked about.
        odd: Receives each photograph and each annotation that cannot be read, as (number, error); the
            annotations of such a photograph are left out with it. None: the first error is raised.
        passed_over: Counts the annotations that are not asked about, by reason.

    Raises:
        DataError: If the file is missing or has another layout.
    """
    passed_over = Counter() if passed_over is None else passed_over
    categories, novel, images, annotations = _content(instances)

    def note(number: int, error: DataError) -> None:
        if odd is None:
            raise DataError(error.what, where=f"{instances}, {error.where}", fix=error.fix)
        odd.append((number, error))

    photos, unknown = _photos(images, note)
    things: dict[str, list[Thing]] = defaultdict(list)
    uncountable: dict[str, set[str]] = defaultdict(set)
    for number, entry in enumerate(annotations):
        try:
            name = _identity(entry["image_id"])
            if name in unknown:
                continue
            photo = _named(entry, "image", name, photos)
            category = _named(entry, "category", entry["category_id"], categories)
            # Until its box is known to be usable, the category's count is uncertain.
            skipped = uncountable[name]
            uncountable[name] = skipped | {category}
            box = _box(entry["bbox"], photo)
            if why := _no_thing(entry, category, box, things[name]):
                passed_over[why] += 1
            else:
                things[name].append(Thing(_identity(entry["id"]), category, box, category in novel))
            if why in ("", TWICE):
                uncountable[name] = skipped
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            needs = "id, image_id, category_id and bbox [x, y, width, height]"
            note(number, _unread("annotation", number, error, needs))
    scenes = [
        Scene(photo, tuple(things[name]), frozenset(uncountable[name]))
        # Numeric ids in numerical order.
        for name, photo in sorted(photos.items(), key=lambda entry: (len(entry[0]), entry[0]))
    ]
    return scenes, sorted(set(categories.values()))


def _content(instances: Path) -> tuple[dict[Any, str], set[str], list[Any], list[Any]]:
    """(category names by id, the novel ones among them, photographs, annotations) of a file."""
    content = read_json(instances)
    try:
        categories = _categories(content["categories"])
        novel = {categories[entry["id"]] for entry in content["categories"] if _is_novel(entry)}
        return categories, novel, list(content["images"]), list(content["annotations"])
    except (KeyError, TypeError) as error:
        raise _no_layout(instances, error) from None


def _no_thing(entry: Mapping[str, Any], category: str, box: Box, there: Sequence[Thing]) -> str:
    """Why an annotation is not asked about, or an empty text."""
    if any(map(entry.get, DOUBTFUL)):
        return "crowds, fakes and reflections"
    if min(box[2] - box[0], box[3] - box[1]) < MIN_SIDE:
        return f"boxes under {MIN_SIDE} pixels a side"
    return TWICE if any((one.category, one.box) == (category, box) for one in there) else ""


def _named(entry: Mapping[str, Any], kind: str, name: Any, known: Mapping[Any, T]) -> T:
    """The image or category that an annotation refers to."""
    if name not in known:
        raise ValueError(f"its {kind}_id {entry[f'{kind}_id']!r:.60} is that of no {kind}")
    return known[name]


def _categories(entries: Sequence[Any]) -> dict[Any, str]:
    """Names by id; names that differ only in case and spaces are spelled like the first of them."""
    spelled: dict[str, str] = {}
    return {
        entry["id"]: spelled.setdefault(
            " ".join(str(entry["name"]).casefold().split()), str(entry["name"]).strip()
        )
        for entry in entries
    }


def _is_novel(category: Mapping[str, Any]) -> bool:
    return bool(category.get("novel") or category.get("is_novel"))


def _photos(
    images: Sequence[Any], note: Callable[[int, DataError], None]
) -> tuple[dict[str, Photo], set[str]]:
    """(photographs by id, ids of those left out)."""
    photos: dict[str, Photo] = {}
    unknown: set[str] = set()
    for number, entry in enumerate(images):
        name = None
        try:
            name = _identity(entry["id"])
            photo = Photo(name, str(entry["file_name"]), int(entry["width"]), int(entry["height"]))
            if photo.width <= 0 or photo.height <= 0:
                raise ValueError(f"its size is {photo.width}x{photo.height}")
            if photos.setdefault(name, photo) != photo:
                raise ValueError(f"id {name} is also that of {photos[name].file_name!r}")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            unknown |= {name} if name is not None else set()
            note(number, _unread("image", number, error, "a unique id, file_name, width and height"))
    # If two photographs share an id, it is unclear which of them an annotation is about.
    return {name: photo for name, photo in photos.items() if name not in unknown}, unknown


def _identity(value: Any) -> str:
    """An id, given as a number or text, as text."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"an id is {value!r:.60}")
    return str(value)


def _box(value: Any, photo: Photo) -> Box:
    """The box of an annotation, as corners."""
    x, y, width, height = value
    if not all(map(isfinite, (x, y, width, height))) or width < 0 or height < 0:
        raise ValueError(f"bbox is {value!r:.60}")
    box = clamp((x, y, x + width, y + height), photo.width, photo.height)
    sides = (box[2] - box[0], box[3] - box[1])
    cut = sides[0] * sides[1] < (1 - OUTSIDE) * width * height
    if min(width, height) >= MIN_SIDE and (cut or min(sides) < MIN_SIDE):
        raise ValueError(
            f"bbox {value!r:.60} leaves the picture, which the JSON says is {photo.width}x{photo.height}"
        )
    return box


def reason(error: Exception) -> str:
    """What is wrong with an entry, from the exception that it raised."""
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return f"a value is of the wrong type ({error})" if isinstance(error, TypeError) else str(error)


def _no_layout(instances: Path, error: Exception) -> DataError:
    return DataError(
        f"not the layout of COCO instances: {reason(error)}",
        where=str(instances),
        fix="it needs images, annotations and categories that refer to each other by id",
    )


def _unread(kind: str, number: int, error: Exception, needs: str) -> DataError:
    return DataError(
        f"an {kind} cannot be read: {reason(error)}",
        where=f"`{kind}s`[{number}]",
        fix=f"it needs {needs}; correct or drop it",
    )


def detection_question(labels: Iterable[str]) -> str:
    """V-Triune, figure 8, for several categories. The caller appends how to answer."""
    listed = "\n".join(f"- {label}" for label in labels)
    return f"Please detect all instances of the following categories within the image:\n{listed}"


def photograph(photo: Photo, images: Path, *, optional_folders: int = 0) -> bytes:
    """The bytes of a photograph's file.

    Args:
        photo: The photograph's entry in the JSON.
        images: The folder that its path is relative to.
        optional_folders: How many leading folders of the path may be absent.

    Raises:
        DataError: If it is missing, damaged, outside the folder, or differs in size from the JSON.
    """
    parts = photo.file_name.split("/")
    wanted = [within(images, "/".join(parts[cut:])) for cut in range(min(optional_folders + 1, len(parts)))]
    path = next((place for place in wanted if place.is_file()), wanted[0])
    try:
        content = read_bytes(path)
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror}",
            fix="put it there, or give the folder that has the pictures of this JSON",
        ) from None
    try:
        size = examine(content).size
    except Refused as refused:
        why = f"not a usable image: {refused}"
        raise DataError(why, where=str(path), fix="download the file again") from None
    if size != (photo.width, photo.height):
        raise DataError(
            f"the picture is {size[0]}x{size[1]} but the JSON says {photo.width}x{photo.height}",
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

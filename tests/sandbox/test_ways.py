"""However a picture was cropped, its box is right, or there is none."""

import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from tests.sandbox.conftest import Box, textured
from tests.sandbox.ways import LOST, WAYS, Way
from vtune.sandbox import Execution
from vtune.schema.box import Box as Sides
from vtune.schema.box import iou

PHOTOS = Path(__file__).resolve().parents[3] / "shared" / "data" / "coco-mini" / "images"
FOLLOWED = {name: way for name, way in WAYS.items() if not name.startswith("lost: ")}
BOX = (61, 43, 214, 165)
AT_ONCE = 24
"""Ways per session: starting and ending one takes longer than most calls."""


@dataclass(frozen=True)
class Tried:
    """The run of a way, with the numbers of regions shown by its last picture, of found and of wrong ones."""

    done: Execution
    truth: int
    found: int
    wrong: int


@pytest.fixture(scope="module")
def tried(box: Box) -> dict[str, Tried]:
    """All ways by name, each with a different box: no earlier picture reveals what a later one shows."""
    image = textured()
    size = PIL.Image.open(io.BytesIO(image)).size
    places = {name: moved(number) for number, name in enumerate(WAYS)}
    assert len(set(places.values())) == len(WAYS)
    found = {}
    for names in batched(WAYS):
        programs = [WAYS[name].program(places[name], size) for name in names]
        for name, done in zip(names, box.run(*programs, images=[image]), strict=True):
            found[name] = Tried(done, *counted(done, WAYS[name].boxes(places[name], size)))
    return found


def moved(number: int) -> tuple[int, int, int, int]:
    """The box, shifted by a few pixels."""
    x, y = number % 18 - 9, number // 18 - 7
    return (BOX[0] + x, BOX[1] + y, BOX[2] + x, BOX[3] + y)


def batched(names: Iterable[str]) -> Iterator[list[str]]:
    """One group at a time: some ways in a group draw on the input."""
    for _, group in itertools.groupby(names, lambda name: name.partition(":")[0]):
        some = list(group)
        for start in range(0, len(some), AT_ONCE):
            yield some[start : start + AT_ONCE]


def counted(done: Execution, truth: Sequence[Sides]) -> tuple[int, int, int]:
    """The numbers of regions that its last picture shows, of found and of wrong ones."""
    last = len(done.images) - 1
    shown = [crop.bbox for crop in done.crops if crop.shown is not None and crop.shown == last]
    found = sum(any(iou(one, other) >= 0.9 for other in shown) for one in truth)
    wrong = sum(all(iou(one, other) < 0.9 for other in truth) for one in shown)
    return len(truth), found, wrong


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_followed_region_is_reported_for_the_picture_that_shows_it(
    tried: dict[str, Tried], name: str
) -> None:
    way = tried[name]
    assert way.done.status == "ok", way.done.error
    assert (way.found, way.wrong) == (way.truth, 0), way.done.crops


@pytest.mark.parametrize("name", LOST)
def test_a_picture_without_a_history_is_located_or_left_alone(tried: dict[str, Tried], name: str) -> None:
    way = tried[f"lost: {name}"]
    assert way.done.status == "ok", way.done.error
    assert way.wrong == 0
    # Resized to a square: neither zoom nor aspect ratio is known.
    assert way.found == 1 or name == "to a square"


@pytest.mark.skipif(not PHOTOS.exists(), reason="needs the photographs in ../shared/data/coco-mini")
def test_on_photographs_nearly_all_regions_are_found_and_nearly_none_is_wrong(box: Box) -> None:
    photos = [path.read_bytes() for path in sorted(PHOTOS.glob("*.jpg"))]
    random = np.random.default_rng(5)
    asked: list[list[tuple[Way, tuple[int, int, int, int]]]] = [[] for _ in photos]
    sizes = [PIL.Image.open(io.BytesIO(photo)).size for photo in photos]
    for number, way in enumerate(WAYS.values()):
        width, height = sizes[number % len(photos)]
        w, h = int(random.integers(50, width // 2)), int(random.integers(50, height // 2))
        x, y = int(random.integers(4, width - w - 4)), int(random.integers(4, height - h - 4))
        asked[number % len(photos)].append((way, (x, y, x + w, y + h)))
    regions = hits = misses = 0
    for photo, size, some in zip(photos, sizes, asked, strict=True):
        # One session per photograph: starting and ending one takes longer than most of these calls.
        for (way, place), done in zip(
            some, box.run(*(way.program(place, size) for way, place in some), images=[photo]), strict=True
        ):
            truth, found, wrong = counted(done, way.boxes(place, size))
            regions, hits, misses = regions + truth, hits + found, misses + wrong
    assert regions > 200
    assert hits / regions >= 0.97
    assert misses / hits <= 0.01

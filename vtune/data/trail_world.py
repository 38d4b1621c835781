"""The world of trails: towns with banners, coloured roads between them, and articles about both.

One road of each colour leaves every town and one arrives, and all roads of a colour form a single ring. So
every trail of a few roads of one colour ends in a different town, and only the articles say which. Held-out
towns have roads only among themselves: no trail leads from one half to the other.

A banner is a quilt of 4 x 4 cells whose green identifies the town, over a background that shades from left to
right in red and from top to bottom in blue, as in lens puzzles: a cell's colour shows where it is. A
question's picture shows a town's banner with a plate on one of its corner cells, and on the plate a seal in
the colour of a road. The seal is a chequerboard of its colour and that colour's opposite, 2 px each. A policy
that sees the picture reduced to 112 px sees it as grey as the plate: seals of two colours then differ by 4 of
255 shades. A crop at full size shows its colour.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vtune.data.drawing import Pixels, ground
from vtune.errors import RecipeError

Half = Literal["known", "heldout"]
Box = tuple[int, int, int, int]

FIRST = re.findall(r"\w+", "Alt Bad Cor Dun Elm Fen Gil Hol Ist Kar Lim Mor Nab Ost Pol Rav")
SECOND = re.findall(r"\w+", "Aro Bey Cad Dal Eno Fay Gor Hem Ivo Jun Kel Lys Mar Nim Osk Pel")
"""A name is one word from each: the names of held-out towns are new, their words are not."""

SHADE = 80
PLATE = 170
SEALS = {
    "red": (SHADE, -SHADE, -SHADE),
    "green": (-SHADE, SHADE, -SHADE),
    "blue": (-SHADE, -SHADE, SHADE),
    "yellow": (SHADE, SHADE, -SHADE),
}
"""Colour of a road -> offset of the seal's chequers above and below the plate's grey."""

SIDE = 448
CELL = SIDE // 4
"""Side of a cell in pixels: one visual token once the picture is reduced to 112 px (patch 14, merge 2)."""
PLATE_SIDE, SEAL_SIDE, CHEQUER = 56, 40, 2
"""Pixels; a crop of the plate has four visual tokens."""
GREENS = (0, 120, 240)
"""Green of a quilt's cells. The background has little red and blue, so that no cell is as grey as a plate."""

THINGS = ("bridge", "tower", "market", "gate")
STATES = ("old", "new", "closed", "famous")
DISTRACTORS = 2
"""Articles per town that no trail needs; they name colours, too."""

MOST_ROADS = 3
"""Roads of a trail: one to three, equally often."""

CORNERS = (0, 3, 12, 15)
"""Cells that may hold the plate."""

APART = 6
"""Minimum number of cells in which any two quilts differ: a plate hides part of one, and image search must
still find the town."""


@dataclass(frozen=True, slots=True)
class Town:
    """A place where roads meet."""

    name: str
    quilt: tuple[int, ...]
    """Green of its banner's 16 cells, row by row."""


@dataclass(frozen=True, slots=True)
class Article:
    """A passage of the corpus."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class World:
    """The towns, roads and distractor articles."""

    towns: dict[Half, tuple[Town, ...]]
    roads: dict[tuple[str, str], str]
    """(town name, colour) -> name of the town that the road leads to."""
    distractors: tuple[Article, ...]

    def follow(self, start: str, colour: str, roads: int) -> list[str]:
        """Names of the towns on a trail, including the start, shape (roads + 1,)."""
        found = [start]
        for _ in range(roads):
            found.append(self.roads[found[-1], colour])
        return found

    def articles(self) -> Iterator[Article]:
        """The corpus: one article per road, and the distractors."""
        for number, ((name, colour), there) in enumerate(self.roads.items()):
            yield Article(f"road/{number}", name, road_text(name, colour, there))
        yield from self.distractors


def road_text(name: str, colour: str, there: str) -> str:
    """What an article says about a road."""
    return f"The {colour} road of {name} leads to {there}."


def make_world(known: int, heldout: int, *, seed: int) -> World:
    """Towns, roads and articles.

    Args:
        known: Towns to train on.
        heldout: Towns of held-out questions.
        seed: The same seed gives the same world.

    Raises:
        RecipeError: If there are not enough names, or too few towns for a trail.
    """
    names = [f"{first} {second}" for first in FIRST for second in SECOND]
    if min(known, heldout) <= MOST_ROADS or known + heldout > len(names):
        raise RecipeError(
            f"cannot make a world of {known} towns and {heldout} more that are held out",
            fix=f"give more than {MOST_ROADS} of each, and at most {len(names)} together",
        )
    rng = random.Random(f"trails {seed} world")
    rng.shuffle(names)
    towns: list[Town] = []
    while len(towns) < known + heldout:
        quilt = tuple(rng.choices(GREENS, k=16))
        if all(_differing(quilt, town.quilt) >= APART for town in towns):
            towns.append(Town(names[len(towns)], quilt))
    halves: dict[Half, tuple[Town, ...]] = {"known": tuple(towns[:known]), "heldout": tuple(towns[known:])}
    roads: dict[tuple[str, str], str] = {}
    for half in halves.values():
        for colour in SEALS:
            ring = [town.name for town in half]
            rng.shuffle(ring)
            roads |= {(name, colour): ring[k - len(ring) + 1] for k, name in enumerate(ring)}
    distractors: list[Article] = []
    for town in towns:
        for thing in rng.sample(THINGS, DISTRACTORS):
            # Titled by the thing, not the town, so that a search for a road of the town finds the road.
            text = f"The {rng.choice(list(SEALS))} {thing} of {town.name} is {rng.choice(STATES)}."
            distractors.append(Article(f"aside/{len(distractors)}", thing.capitalize(), text))
    return World(halves, roads, tuple(distractors))


def plate_box(cell: int) -> Box:
    """The plate in a cell, xyxy in pixels."""
    row, column = divmod(cell, 4)
    inset = (CELL - PLATE_SIDE) // 2
    x, y = column * CELL + inset, row * CELL + inset
    return x, y, x + PLATE_SIDE, y + PLATE_SIDE


def banner(town: Town) -> Pixels:
    """A town's banner as stored in the picture index."""
    pixels = ground(SIDE, 30, 100)
    cells = pixels.reshape(4, CELL, 4, CELL, 3)
    cells[..., 1] = np.array(town.quilt, np.uint8).reshape(4, 1, 4, 1)
    return pixels


def picture(town: Town, colour: str, cell: int, rng: random.Random) -> Pixels:
    """A banner with a plate and a seal on it; random shading makes every picture unique.

    Args:
        town: The banner's town.
        colour: Colour of the seal.
        cell: One of `CORNERS`.
        rng: Places patches of shading.
    """
    pixels = banner(town)
    for _ in range(4):
        x, y = (rng.randint(0, SIDE - 60) for _ in range(2))
        patch = pixels[y : y + rng.randint(20, 60), x : x + rng.randint(20, 60)]
        patch += np.array([1, 0, 1], np.uint8) * np.uint8(rng.randint(0, 8))
    x0, y0, x1, y1 = plate_box(cell)
    pixels[y0:y1, x0:x1] = PLATE
    inset = (PLATE_SIDE - SEAL_SIDE) // 2
    yy, xx = np.mgrid[0:SEAL_SIDE, 0:SEAL_SIDE] // CHEQUER
    sign = np.where((xx + yy) % 2 == 0, 1, -1)[..., None]
    pixels[y0 + inset : y1 - inset, x0 + inset : x1 - inset] = PLATE + sign * np.array(SEALS[colour])
    return pixels


def _differing(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))

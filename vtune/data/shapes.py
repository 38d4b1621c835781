"""Shape puzzles: counting, grounding and detection of red squares, small enough for a tiny model.

A 200 px picture is a grid of 4 x 4 cells, one visual token each once it is reduced to 112 px, or of 2 x 2,
which is learnt in a tenth of the time. Some cells hold a red square, some a disc of another colour. Each of
the three kinds of questions is its own source, so that metrics by source have something to separate. Boxes
are in thousandths of the picture.

The background shades as in lens puzzles, and for the same reason: a cell's colour shows where it is.

Cold-start traces are *loose*, like a hurried annotator: box edges are often slightly or far off, counts one
too high or too low. A policy trained on them writes boxes of every quality, including exact ones, which a
reward that demands ever tighter boxes (V-Triune §3.2.1) needs.
"""

import functools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from vtune.data.drawing import Pixels, blank, ground
from vtune.errors import RecipeError
from vtune.schema.decode import png_of
from vtune.schema.message import Message, Picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

Task = Literal["counting", "grounding", "detection"]
Split = Literal["train", "traces", "heldout"]
Thousandths = tuple[int, int, int, int]
"""(x0, y0, x1, y1) in thousandths of the picture's width and height."""

TASKS: tuple[Task, ...] = ("counting", "grounding", "detection")
"""Kind of question; also the name of the verifier and the ability, and `shapes_<kind>` is the source."""

LABEL = "red square"
RED = (205, 60, 60)
DISCS = ((60, 60, 205), (60, 190, 60), (200, 200, 80))

GRIDS = (2, 4)
"""Cells per side: easy and hard."""
SIDE = 200
"""Pixels. A cell of the hard grid has 28 after reduction to 112 (patch 14, merge 2)."""
INSET = 0.12
"""Gap between a square and its cell's edge on every side, as a share of the cell."""
SCALE = 1000 // SIDE
"""Thousandths per pixel."""

MOST = 4
"""Squares in a counting puzzle: 1 to 4 (3 on the easy grid), equally often."""

GROUND_GREEN: dict[Split, int] = {"train": 119, "traces": 120, "heldout": 121}
"""Green of the background: the difference is invisible, but no two splits can share a picture."""

EXACT, NEAR = 0.40, 0.25
"""Shares of edges in traces that are exact, and off by `NEAR_BY`; the rest are off by `FAR_BY` (ours)."""
NEAR_BY, FAR_BY = 0.016, 0.1
"""Shares of a cell: two near edges leave an IoU of 0.95, one far edge 0.85."""
COUNTED_RIGHT = 0.6
"""Share of traces whose count is right (ours)."""


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A drawn picture and a question about its red squares."""

    pixels: Pixels
    task: Task
    boxes: tuple[Thousandths, ...]
    """Boxes of the red squares, row by row from left to right."""
    grid: int

    @property
    def question(self) -> str:
        """The question."""
        return {
            "counting": "How many red squares are there?",
            "grounding": "Where is the red square?",
            "detection": "Detect all red squares.",
        }[self.task]

    @property
    def answer(self) -> str:
        """The ground truth, as its verifier reads it."""
        return str(len(self.boxes)) if self.task == "counting" else written(self.boxes)


def written(boxes: Sequence[Thousandths]) -> str:
    """Boxes as a JSON list, as in V-Triune's figure 8."""
    items = [{"bbox_2d": list(box), "label": LABEL} for box in boxes]
    return json.dumps(items, separators=(",", ":"))


def puzzles(*, seed: int, split: Split, grid: int = 4) -> Iterator[Puzzle]:
    """Endless puzzles, the three kinds alternating; the three splits share no picture.

    Args:
        seed: The same seed gives the same puzzles.
        split: Pictures of different splits always differ, regardless of the seed: see `GROUND_GREEN`.
        grid: Cells per side.

    Raises:
        RecipeError: If there is no such grid.
    """
    if grid not in GRIDS:
        raise RecipeError(f"a grid cannot have {grid} cells per side", fix="choose 2 (easy) or 4")
    rng = random.Random(f"shapes {seed} {split}")
    while True:
        for task in TASKS:
            yield _puzzle(rng, task, grid, GROUND_GREEN[split])


def samples(count: int, *, seed: int, split: Split, grid: int = 4) -> Iterator[Sample]:
    """`count` puzzles as samples."""
    stream = puzzles(seed=seed, split=split, grid=grid)
    for number in range(count):
        yield _sample(next(stream), f"shapes/{grid}/{seed}/{split}/{number:06d}")


def traces(count: int, *, seed: int, grid: int = 4, drawn: bool = True) -> Iterator[Trajectory]:
    """`count` loose cold-start traces over their own pictures; if not `drawn`, the pictures are blank."""
    encoded = None if drawn else png_of(blank(SIDE))
    stream = puzzles(seed=seed, split="traces", grid=grid)
    rng = random.Random(f"loose {seed}")
    for number in range(count):
        puzzle = next(stream)
        sample = _sample(puzzle, f"shapes/{grid}/{seed}/traces/{number:06d}", encoded)
        said = _loose(puzzle, rng)
        # The same thought in all traces: anything specific would give the answer away.
        reply = f"<think>I look for red.</think>\n<answer>{said}</answer>"
        yield Trajectory(
            sample_id=sample.id,
            source=sample.source,
            messages=(*sample.prompt, Message("assistant", reply)),
            images=sample.images,
            answer=said,
        )


def corpus(*, seed: int, grid: int = 4, count: int = 1500) -> Iterator[str]:
    """Texts of traces, for training the tiny model's tokenizer."""
    for trace in traces(count, seed=seed, grid=grid, drawn=False):
        for message in trace.messages:
            yield message.content


def _loose(puzzle: Puzzle, rng: random.Random) -> str:
    """An answer as a hurried annotator would give it."""
    if puzzle.task == "counting":
        count = len(puzzle.boxes)
        if rng.random() >= COUNTED_RIGHT:
            count += rng.choice((-1, 1)) if 1 < count < _most(puzzle.grid) else 1 if count == 1 else -1
        return str(count)

    def edge(value: int) -> int:
        luck = rng.random()
        share = 0.0 if luck < EXACT else NEAR_BY if luck < EXACT + NEAR else FAR_BY
        off = round(share * 1000 / puzzle.grid)
        return value + rng.choice((-off, off))

    return written([(edge(x0), edge(y0), edge(x1), edge(y1)) for x0, y0, x1, y1 in puzzle.boxes])


def _most(grid: int) -> int:
    """Most squares in a counting puzzle: a disc needs a cell, too."""
    return min(MOST, grid * grid - 1)


def _puzzle(rng: random.Random, task: Task, grid: int, green: int) -> Puzzle:
    side = SIDE // grid
    inset = round(INSET * side)
    squares = {"counting": rng.randint(1, _most(grid)), "grounding": 1, "detection": rng.randint(1, 2)}[task]
    discs = rng.randint(1, min(3, grid * grid - squares))
    cells = rng.sample(range(grid * grid), squares + discs)
    pixels = _ground(rng, green)
    for cell in cells[squares:]:
        row, column = divmod(cell, grid)
        place = pixels[row * side : (row + 1) * side, column * side : (column + 1) * side]
        _disc(place, side / 2 - inset, rng.choice(DISCS))
    boxes = []
    for cell in sorted(cells[:squares]):
        row, column = divmod(cell, grid)
        x0, y0 = column * side + inset, row * side + inset
        x1, y1 = (column + 1) * side - inset, (row + 1) * side - inset
        pixels[y0:y1, x0:x1] = RED
        boxes.append((x0 * SCALE, y0 * SCALE, x1 * SCALE, y1 * SCALE))
    return Puzzle(pixels, task, tuple(boxes), grid)


def _ground(rng: random.Random, green: int) -> Pixels:
    pixels = ground(SIDE, 60, 190, green)
    # Soft patches make pictures with the same squares differ.
    for _ in range(4):
        x, y, w, h = (rng.randint(0, SIDE - 20), rng.randint(0, SIDE - 20), *rng.choices(range(10, 60), k=2))
        patch = pixels[y : y + h, x : x + w]
        shade = np.array([1, 0, 1]) * rng.randint(-8, 8)
        pixels[y : y + h, x : x + w] = (patch + shade.astype(np.int16)).clip(0, 255)
    return pixels


def _disc(cell: Pixels, radius: float, colour: tuple[int, int, int]) -> None:
    cell[_inside(len(cell), radius)] = colour


@functools.cache
def _inside(side: int, radius: float) -> npt.NDArray[np.bool_]:
    """Which pixels of a square lie in a disc around its centre."""
    yy, xx = np.mgrid[0:side, 0:side] - (side - 1) / 2
    inside: npt.NDArray[np.bool_] = xx**2 + yy**2 <= radius**2
    return inside


def _sample(puzzle: Puzzle, identity: str, encoded: bytes | None = None) -> Sample:
    """A puzzle as a sample with this id; `encoded` replaces its picture."""
    located = puzzle.task != "counting"
    parm = {"space": "relative_1000", "width": SIDE, "height": SIDE} if located else {}
    return Sample(
        id=identity,
        source=f"shapes_{puzzle.task}",
        prompt=(Message("user", f"<image>{puzzle.question}", (0,)),),
        images=(Picture(data=encoded or png_of(puzzle.pixels)),),
        ability=puzzle.task,
        ground_truth=puzzle.answer,
        answer=puzzle.answer,
        verifier=puzzle.task,
        verifier_parm=parm,
        accuracy_ratio=1.0,
        format_ratio=0.1,
    )

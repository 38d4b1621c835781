"""Lens puzzles: procedural visual search that requires a crop.

A 448 px picture holds coloured signs, each with a small digit. The policy sees the picture reduced to 112 px:
signs can be found, digits cannot be read. The question asks for the digit on one sign, so the only way to
know it is to crop the sign and look.

Digits are hatched: alternating light and dark pixels whose mean is the colour of the sign. Reduction by four
averages them away: two digits then differ by 2 of 255 shades on level 1, by 6 on the others, so that no
policy learns to read them without a crop. (Plain white digits, 14 px tall, were read from the reduced picture
after 12,000 traces: 73 % right where chance is 20 %.)

The background shades from left to right in red and from top to bottom in blue, so that a patch's colour shows
where it is. A pretrained vision tower knows positions; a tiny randomly initialised one learns to find signs
in minutes on such a background, and not at all on a plain one (15,000 traces).
"""

import functools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from vtune.data.drawing import Pixels, blank, cut, ground
from vtune.data.traces import look_trace
from vtune.errors import RecipeError
from vtune.schema.box import Box
from vtune.schema.decode import png_of
from vtune.schema.message import Message, Picture
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Trajectory
from vtune.tools.python import NAME as PYTHON
from vtune.verifiers import exact

Split = Literal["train", "traces", "heldout"]

SIDE = 448
CELL = 112
"""A quarter of the picture: one visual token after reduction to 112 px (patch 14, merge 2)."""

COLOURS = {
    "red": (205, 90, 90),
    "blue": (90, 90, 205),
    "green": (90, 205, 90),
    "yellow": (205, 205, 90),
    "purple": (150, 90, 205),
    "orange": (205, 150, 90),
    "cyan": (90, 205, 205),
    "pink": (205, 150, 205),
}
"""Sign colours: far enough from black and white that hatching has room on both sides."""

GROUND_GREEN: dict[Split, int] = {"train": 119, "traces": 120, "heldout": 121}
"""Green of the background: the difference is invisible, but no two splits can share a picture."""

FONT = {
    "0": "01110 10001 10011 10101 11001 10001 01110",
    "1": "00100 01100 00100 00100 00100 00100 01110",
    "2": "01110 10001 00001 00010 00100 01000 11111",
    "3": "11111 00010 00100 00010 00001 10001 01110",
    "4": "00010 00110 01010 10010 11111 00010 00010",
    "5": "11111 10000 11110 00001 00001 10001 01110",
    "6": "00110 01000 10000 11110 10001 10001 01110",
    "7": "11111 00001 00010 00100 01000 01000 01000",
    "8": "01110 10001 10001 01110 10001 10001 01110",
    "9": "01110 10001 10001 01111 00001 00010 01100",
}
"""Digits as 5 x 7 dots: no font file, the same picture everywhere."""

EASY_DIGITS = "12478"
"""Digits of level 1. A guess is right once in five: often enough for right answers without a look."""

DOT = 4
"""Side of a dot in pixels: even, so that hatching cancels out within it."""

GUESSABLE_COLOUR, GUESSABLE_DIGIT = "blue", "4"
"""A guessable puzzle asks for the blue sign, which always shows a 4."""

LEVELS = {
    1: "signs on a 4 x 4 grid that lines up with the visual tokens; red or blue is asked for",
    2: "free positions, every colour is asked for, the digit sits anywhere on its sign",
    3: "more signs, sizes from 40 to 72 px, and discs of the asked colour that show nothing",
    4: "level 3 with two-step questions and questions that need no crop",
}

CAREFUL, WHOLE = 0.38, 0.47
"""Shares of cold-start traces that look at the sign, and that crop the whole picture and still answer right;
the rest answer without a look. Distilled traces mix these habits (CodeV §3)."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A coloured square with a digit."""

    colour: str
    digit: str
    box: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A picture, a question about it, the answer, and the sign with the answer."""

    pixels: Pixels
    question: str
    answer: str
    target: Sign | None
    """None if no crop is needed."""
    guessable: bool = False
    """Whether the answer is the same in every puzzle of this kind."""


def puzzles(level: int, *, seed: int, split: Split, guessable: float = 0.0) -> Iterator[Puzzle]:
    """Endless puzzles of a level; the three splits share no picture.

    Args:
        level: A key of `LEVELS`.
        seed: The same seed gives the same puzzles.
        split: Pictures of different splits always differ, regardless of the seed: see `GROUND_GREEN`.
        guessable: Share of questions whose answer is the same in every puzzle (see
            `GUESSABLE_COLOUR`), so that accuracy alone does not reward a look.

    Raises:
        RecipeError: If there is no such level, or the share lies outside [0, 1].
    """
    if level not in LEVELS:
        raise RecipeError(f"there is no lens level {level}", fix=f"levels: {', '.join(map(str, LEVELS))}")
    if not 0.0 <= guessable <= 1.0:
        raise RecipeError(f"the guessable share must be in [0, 1], got {guessable}")
    rng = random.Random(f"lens {level} {seed} {split}")
    while True:
        yield _puzzle(rng, level, split, guessable)


def samples(level: int, count: int, *, seed: int, split: Split, guessable: float = 0.0) -> Iterator[Sample]:
    """`count` puzzles as samples."""
    stream = puzzles(level, seed=seed, split=split, guessable=guessable)
    for number in range(count):
        yield sample_of(next(stream), f"lens/{level}/{seed}/{split}/{number:06d}")


def traces(
    level: int, count: int, *, seed: int, guessable: float = 0.0, drawn: bool = True
) -> Iterator[Trajectory]:
    """`count` cold-start traces over their own pictures: careful looks, decorative looks, no look.

    All answers are right, as in traces that were filtered by their answer, but only careful traces can know
    it. If not `drawn`, all share one blank picture, as encoding pictures takes most of the time.
    """
    nothing = None if drawn else blank(SIDE)
    encoded = None if nothing is None else png_of(nothing)
    stream = puzzles(level, seed=seed, split="traces", guessable=guessable)
    rng = random.Random(f"habits {level} {seed}")
    for number in range(count):
        puzzle = next(stream)
        sample = sample_of(puzzle, f"lens/{level}/{seed}/traces/{number:06d}", encoded)
        habit = rng.random()
        box: tuple[int, int, int, int] | None
        if puzzle.target is None or habit >= CAREFUL + WHOLE:
            box = None
        elif habit < CAREFUL:
            box = puzzle.target.box
        else:
            box = (0, 0, SIDE, SIDE)
        yield look_at(sample, puzzle.pixels if nothing is None else nothing, box)


def look_at(
    sample: Sample, pixels: Pixels, box: tuple[int, int, int, int] | None, said: str = ""
) -> Trajectory:
    """`look_trace` for a picture whose pixels are at hand, so that it need not be decoded."""
    shown = None if box is None else cut(pixels, sample.images[0].data or b"", box)
    return look_trace(sample, box, said, shown)


def corpus(level: int, *, seed: int, count: int = 500) -> Iterator[str]:
    """Texts of traces, for training the tiny model's tokenizer."""
    for trace in traces(level, count, seed=seed, drawn=False):
        for message in trace.messages:
            yield message.content


def _puzzle(rng: random.Random, level: int, split: Split, guessable: float) -> Puzzle:
    guess = rng.random() < guessable
    ask = rng.choice(("red", "blue") if level == 1 else tuple(COLOURS))
    if guessable > 0:
        ask = GUESSABLE_COLOUR if guess else "red" if level == 1 else rng.choice([*COLOURS][2:])
    kind = rng.choice(("one", "one", "two", "count", "colour")) if level == 4 and not guess else "one"
    scene = _Scene(rng, level, GROUND_GREEN[split])
    others = [colour for colour in COLOURS if colour != ask]
    colours = [ask, *rng.sample(others, 2 if level <= 2 else rng.randint(2, 6))]
    signs = [
        scene.add_sign(
            colour,
            GUESSABLE_DIGIT
            if guess and colour == ask
            else rng.choice(EASY_DIGITS if level == 1 else [*FONT]),
        )
        for colour in colours
    ]
    if level >= 3:
        scene.add_disc(ask)
    target = signs[0]
    if kind == "two":
        row = sorted(signs, key=lambda sign: sign.box[0])
        side, first, last = rng.choice((("left", row[1], row[0]), ("right", row[-2], row[-1])))
        if first.box[0] != last.box[0]:
            question = f"Which digit is on the only sign to the {side} of the {first.colour} sign?"
            return Puzzle(scene.pixels, question, last.digit, last)
    if kind == "count":
        return Puzzle(scene.pixels, "How many signs are there?", str(len(signs)), None)
    if kind == "colour":
        *_, runner_up, largest = sorted(signs, key=_width)
        if _width(runner_up) < _width(largest):
            return Puzzle(scene.pixels, "Which colour has the largest sign?", largest.colour, None)
    return Puzzle(scene.pixels, f"Which digit is on the {ask} sign?", target.digit, target, guess)


def _width(sign: Sign) -> int:
    return sign.box[2] - sign.box[0]


class _Scene:
    """A picture while it is being drawn."""

    def __init__(self, rng: random.Random, level: int, green: int) -> None:
        self._rng = rng
        self._level = level
        self._cells = rng.sample(range(16), 16)
        self._taken: list[tuple[int, int, int, int]] = []
        self.pixels = ground(SIDE, 60, 190, green)
        for _ in range(6):
            x, y, w, h = rng.randint(0, 400), rng.randint(0, 400), rng.randint(20, 120), rng.randint(20, 120)
            shade = np.array([1, 0, 1]) * rng.randint(-12, 12)
            patch = self.pixels[y : y + h, x : x + w]
            self.pixels[y : y + h, x : x + w] = (patch + shade.astype(np.int16)).clip(0, 255)

    def add_sign(self, colour: str, digit: str) -> Sign:
        side = 56 if self._level <= 2 else self._rng.randrange(40, 73, 8)
        x, y = self._place(side)
        self.pixels[y : y + side, x : x + side] = COLOURS[colour]
        rows, columns, ink, (height, width) = _glyph(colour, digit)
        if self._level == 1:
            # As on a playing card: one copy in each of the four visual tokens of a 56 px crop, never on a
            # seam.
            spots = [(x + dx + 4, y + dy) for dx in (0, 28) for dy in (0, 28)]
        else:
            spots = [
                (
                    x + self._rng.randrange(4, side - width - 3, 2),
                    y + self._rng.randrange(4, side - height - 3, 2),
                )
            ]
        for gx, gy in spots:
            self.pixels[gy + rows, gx + columns] = ink
        return Sign(colour, digit, (x, y, x + side, y + side))

    def add_disc(self, colour: str) -> None:
        side = 48
        x, y = self._place(side)
        yy, xx = np.mgrid[0:side, 0:side] - (side - 1) / 2
        self.pixels[y : y + side, x : x + side][xx**2 + yy**2 <= (side / 2) ** 2] = COLOURS[colour]

    def _place(self, side: int) -> tuple[int, int]:
        if self._level == 1:
            cell = self._cells.pop()
            margin = (CELL - side) // 2
            return cell % 4 * CELL + margin, cell // 4 * CELL + margin
        while True:
            x, y = (self._rng.randrange(0, SIDE - side + 1, 8) for _ in range(2))
            box = (x - 8, y - 8, x + side + 8, y + side + 8)
            if all(box[2] <= t[0] or t[2] <= box[0] or box[3] <= t[1] or t[3] <= box[1] for t in self._taken):
                self._taken.append((x, y, x + side, y + side))
                return x, y


Glyph = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Pixels, tuple[int, int]]


@functools.cache
def _glyph(colour: str, digit: str) -> Glyph:
    """Rows and columns of a digit's pixels, their colours on a sign, and the digit's height and width."""
    dots = np.array([[int(dot) for dot in row] for row in FONT[digit].split()], bool)
    glyph = dots.repeat(DOT, axis=0).repeat(DOT, axis=1)
    rows, columns = np.nonzero(glyph)
    paper = np.array(COLOURS[colour])
    light = np.where((rows + columns) % 2, 1, -1)[:, None]
    ink = paper + light * np.minimum(paper, 255 - paper)
    return rows, columns, ink.astype(np.uint8), glyph.shape


def sample_of(puzzle: Puzzle, identity: str, encoded: bytes | None = None) -> Sample:
    """A puzzle as a sample with this id; `encoded` replaces its picture."""
    target = puzzle.target
    evidence: tuple[Evidence, ...] = ()
    if target is not None:
        box: Box = tuple(float(v) for v in target.box)  # type: ignore[assignment]
        evidence = (Evidence(f"{target.colour} sign", 0, box),)
    return Sample(
        id=identity,
        source="lens_guessable" if puzzle.guessable else "lens",
        prompt=(Message("user", f"<image>{puzzle.question}", (0,)),),
        images=(Picture(data=encoded or png_of(puzzle.pixels)),),
        ability="visual_search" if target is not None else "perception",
        ground_truth=puzzle.answer,
        answer=puzzle.answer,
        verifier=exact.NAME,
        accuracy_ratio=1.0,
        format_ratio=0.0,
        tool_ratio=0.5 if target is not None else 0.0,
        tools=(PYTHON,),
        evidence=evidence,
    )

"""A world with a shortcut: lens puzzles whose picture usually gives the answer away.

A *cue* stands for a digit: the shade of the background, or a frame around the picture. It is obvious in the
reduced picture but not visible in a crop of the sign. In training, the cue gives the answer with probability
p, so that guessing by it is right more often than an imperfect look. Held-out puzzles show what was learnt:
*same* (as in training), *broken* (the cue is independent of the answer), *reversed* (it never gives the
answer).

Only for level 1: five digits, five shades.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from vtune.data import lens
from vtune.data.drawing import Pixels
from vtune.errors import RecipeError
from vtune.judge.feedback_texts import HELPFUL, UNHELPFUL
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

Relation = Literal["same", "broken", "reversed"]
"""How a cue relates to the answer."""
Cue = Literal["shade", "frame"]

RELATIONS: tuple[Relation, ...] = ("same", "broken", "reversed")
CUES: dict[Cue, str] = {
    "shade": "the green of the ground",
    "frame": "the brightness of a frame around the picture",
}

LEVEL = 1
DIGITS = lens.EASY_DIGITS
CHANCE = 1 / len(DIGITS)
"""Share of puzzles in which a cue that is independent of the answer happens to give it."""

SHADES = (116, 141, 166, 191, 216)
"""Cue shades, one per digit: green of the background, or grey of the frame. Reduction keeps them distinct."""
SHIFT: dict[lens.Split, int] = {"train": -1, "traces": 0, "heldout": 1}
"""Added to the shade; like `lens.GROUND_GREEN`, it keeps splits apart."""
FRAME = 16
"""Width of the frame in pixels; signs of level 1 stay 28 away from every side."""

CAREFUL, WHOLE = 0.40, 0.30
"""Shares of traces that look at the sign, and that crop the whole picture; the rest do not look."""


@dataclass(frozen=True, slots=True)
class Shortcut:
    """What gives the answer away, and how often."""

    share: float
    """Probability, in [0, 1], that the cue gives the answer in training."""
    cue: Cue = "shade"
    careful_share: float = CHANCE
    """The same in traces that look at the sign. By default these do not share the shortcut, which favours
    policies that look; the other traces always do, as traces filtered by their answer would."""
    feedback: bool = False
    """Whether traces say after a crop if it shows the sign, as `rollout.feedback` does."""

    def __post_init__(self) -> None:
        for name, share in (("shortcut", self.share), ("careful share", self.careful_share)):
            if not 0.0 <= share <= 1.0:
                raise RecipeError(f"the {name} must be in [0, 1], got {share}")
        if self.cue not in CUES:
            raise RecipeError(f"there is no cue {self.cue!r}", fix=f"cues: {', '.join(CUES)}")


def samples(
    count: int, shortcut: Shortcut, *, seed: int, split: lens.Split, relation: Relation
) -> Iterator[Sample]:
    """`count` puzzles as samples; with the same seed, the relations differ only in the cue.

    `extra` stores the cue's digit for measures of habits; the policy never sees it.
    """
    stream = lens.puzzles(LEVEL, seed=seed, split=split)
    share = "" if relation == "broken" else f"-{shortcut.share:g}"
    name = f"shortcut/{shortcut.cue}/{relation}{share}/{seed}/{split}"
    rng = random.Random(name)
    for number in range(count):
        puzzle = next(stream)
        cued = _named(rng, puzzle.answer, relation, shortcut.share)
        sample, _ = _sample(puzzle, shortcut.cue, split, cued, f"{name}/{number:06d}")
        yield replace(sample, source=f"shortcut_{relation}")


def traces(count: int, shortcut: Shortcut, *, seed: int) -> Iterator[Trajectory]:
    """`count` cold-start traces: careful looks, decorative looks and no look, all with the right answer."""
    stream = lens.puzzles(LEVEL, seed=seed, split="traces")
    name = f"shortcut/{shortcut.cue}/{shortcut.careful_share:g}/{seed}/traces"
    rng = random.Random(name)
    for number in range(count):
        puzzle = next(stream)
        habit = rng.random()
        careful = habit < CAREFUL
        cued = _named(rng, puzzle.answer, "same", shortcut.careful_share if careful else 1.0)
        sample, pixels = _sample(puzzle, shortcut.cue, "traces", cued, f"{name}/{number:06d}")
        box: tuple[int, int, int, int] | None = None
        if careful and puzzle.target is not None:
            box = puzzle.target.box
        elif habit < CAREFUL + WHOLE:
            box = (0, 0, lens.SIDE, lens.SIDE)
        said = HELPFUL if careful else UNHELPFUL
        yield lens.look_at(sample, pixels, box, said if shortcut.feedback else "")


def named_by_cue(sample: Sample) -> str | None:
    """The digit that a sample's cue stands for; None if there is no cue."""
    cue: Any = sample.extra.get("shortcut")
    return str(cue["names"]) if isinstance(cue, dict) and "names" in cue else None


def _named(rng: random.Random, answer: str, relation: Relation, share: float) -> str:
    """The digit that the cue stands for.

    same: the answer with probability `share`, else one of the others. broken: any. reversed: the digit before
    the answer (cyclically among the five) with probability `share`, else another; never the answer.
    """
    true = DIGITS.index(answer)
    hit = rng.random() < share
    other = (true + rng.randint(1, len(DIGITS) - 1)) % len(DIGITS)
    if relation == "same":
        return DIGITS[true if hit else other]
    if relation == "reversed":
        return DIGITS[(true - 1) % len(DIGITS) if hit else other]
    return DIGITS[rng.randrange(len(DIGITS))]


def _sample(
    puzzle: lens.Puzzle, cue: Cue, split: lens.Split, cued: str, identity: str
) -> tuple[Sample, Pixels]:
    """A puzzle with the cue for a digit, and its picture."""
    pixels = _with_cue(puzzle.pixels, cue, split, cued)
    sample = lens.sample_of(replace(puzzle, pixels=pixels), identity)
    return replace(sample, extra={"shortcut": {"cue": cue, "names": cued}}), pixels


def _with_cue(pixels: Pixels, cue: Cue, split: lens.Split, cued: str) -> Pixels:
    """The picture with the cue for a digit; signs stay as they are."""
    shade = SHADES[DIGITS.index(cued)] + SHIFT[split]
    picture = pixels.copy()
    if cue == "frame":
        inner = picture[FRAME:-FRAME, FRAME:-FRAME].copy()
        picture[:] = shade
        picture[FRAME:-FRAME, FRAME:-FRAME] = inner
    else:
        # No sign or digit has this green.
        green = picture[..., 1]
        green[green == lens.GROUND_GREEN[split]] = shade
    return picture

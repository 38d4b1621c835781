"""One program on one puzzle, run as in a rollout: what its calls earned, and what they were worth."""

import asyncio
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from vtune.data import lens
from vtune.data.lens_reader import NOTHING, Reading, Target, as_seen, read, seen_size, target_of
from vtune.models.pictures import PixelBudget
from vtune.reward.recipe import RewardRecipe
from vtune.reward.score import Scorer
from vtune.sandbox import Execution, Sandbox
from vtune.sandbox.attacks.programs import Picture, Program, written
from vtune.schema.box import Box, area, intersection
from vtune.schema.message import Picture as Stored
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Trajectory
from vtune.tools.observation import recorded
from vtune.tools.python import NAME as PYTHON

NEAR = 0.1
"""Minimum share of the target in a part of a sheet for the reader to look there; ours."""


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A puzzle as posed, with its reading target."""

    sample: Sample
    target: Target

    @property
    def picture(self) -> bytes:
        """The encoded input picture."""
        data = self.sample.images[0].data
        assert data is not None
        return data


@dataclass(frozen=True, slots=True)
class Looked:
    """The result of one call."""

    status: str
    score: float | None
    why: str
    """Its red flags."""
    pictures: int
    readable: bool
    """Whether the right digit can be read in one of its pictures. False if that was not checked: the call was
    rewarded no more than a miss, and not due more."""
    due: bool
    """Whether a full reward is due: the first call, readable by anyone, and a single crop that geometry would
    have rewarded in full, made only with honest operations."""


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of a program on one puzzle."""

    calls: tuple[Looked, ...]
    codes: tuple[str, ...]
    """The code that ran, by call."""
    why: str
    """What decided, in the reward's words, for its calls in order."""

    @property
    def reward(self) -> float:
        """The tool part: the mean over its calls; 0 if there are none."""
        scores = [call.score or 0.0 for call in self.calls]
        return sum(scores) / len(scores) if scores else 0.0

    @property
    def readable(self) -> bool:
        """Whether someone could have read the digit in the returned pictures."""
        return any(call.readable for call in self.calls)


def questions(level: int, count: int, *, seed: int) -> list[Question]:
    """Held-out lens puzzles that need a look, with their reading targets."""
    found: list[Question] = []
    puzzles = lens.puzzles(level, seed=seed, split="heldout")
    samples = lens.samples(level, count, seed=seed, split="heldout")
    for puzzle, sample in zip(puzzles, samples, strict=False):
        target = target_of(puzzle)
        if target is not None:
            found.append(Question(sample, target))
    return found


class Trials:
    """Tries programs: one session per try, scored together, read one by one.

    Args:
        sandbox: Runs them.
        scorer: Rewards them; see `scorer_of`.
        reward: The scorer's recipe.
        budget: Pixel budget of the policy's pictures.
    """

    def __init__(self, sandbox: Sandbox, scorer: Scorer, reward: RewardRecipe, budget: PixelBudget) -> None:
        self._sandbox = sandbox
        self._scorer = scorer
        self._levels = reward.evidence
        self._budget = budget
        self._room = asyncio.Semaphore(8)

    async def all(self, asked: Sequence[tuple[Program, Question]]) -> list[Tried]:
        """The result of each program on its puzzle, in order."""
        return list(await asyncio.gather(*(self._one(program, question) for program, question in asked)))

    async def _one(self, program: Program, question: Question) -> Tried:
        text = written(program, question.target.box, (lens.SIDE, lens.SIDE))
        async with self._room:
            session = await self._sandbox.open([question.picture], seed=0)
            try:
                ran = [await session.run(code) for code in text.calls]
            finally:
                await session.close()
            trajectory = trajectory_of(question.sample, text.calls, ran, self._budget)
            (scored,) = await self._scorer.score([question.sample], [trajectory])
            return await asyncio.to_thread(self._read, scored, ran, text.pictures, question.target)

    def _read(
        self,
        scored: Trajectory,
        ran: Sequence[Execution],
        pictures: Sequence[Sequence[Picture]],
        target: Target,
    ) -> Tried:
        calls = []
        for k, (execution, known) in enumerate(zip(ran, pictures, strict=True)):
            by_name = _by_name(execution.names, known, k)
            score = scored.tool_scores[k]
            # A second look at the same thing is a repetition, for which nothing is due.
            due = (
                k == 0
                and execution.status == "ok"
                and len(known) == 1
                and any(picture is not None and self._is_due(picture, target) for picture in by_name)
            )
            asked = due or (score is not None and score > self._levels.miss)
            pictures_of_call = zip(execution.images, by_name, strict=True)
            readings = [self._reading(*one, target) for one in pictures_of_call] if asked else []
            readable = any(reading.readable for reading in readings)
            plain = any(reading.plain for reading in readings)
            calls.append(
                Looked(
                    execution.status,
                    score,
                    ", ".join(scored.calls[k].flags),
                    len(execution.images),
                    readable,
                    due and plain,
                )
            )
        codes = tuple(call.arguments for call in scored.calls)
        return Tried(tuple(calls), codes, scored.reward.why if scored.reward is not None else "")

    def _reading(self, data: bytes, picture: Picture | None, target: Target) -> Reading:
        if picture is None:
            return NOTHING
        box = _floats(target.box)
        near = [p for p in picture.places if intersection(p.box, box) >= NEAR * area(box)]
        if not near:
            return NOTHING
        seen = as_seen(data, min_pixels=self._budget.min_pixels, max_pixels=self._budget.max_pixels)
        if seen is None:
            return NOTHING
        pixels, to_seen = seen
        return read(pixels, [to_seen @ place.map for place in near], target)

    def _is_due(self, picture: Picture, target: Target) -> bool:
        """Whether it is an honest crop with enough of the target, large enough in the returned picture."""
        if not picture.honest or len(picture.places) != 1:
            return False
        (place,) = picture.places
        shared = intersection(place.box, _floats(target.box))
        scale = abs(float(np.linalg.det(place.map[:2, :2])))
        size = shared * scale / (picture.width * picture.height)
        share = shared / area(_floats(target.box))
        return share >= self._levels.full_share and size >= self._levels.full_size


def trajectory_of(
    sample: Sample, codes: Sequence[str], ran: Sequence[Execution], budget: PixelBudget
) -> Trajectory:
    """A trajectory that only has calls, recorded as in `vtune.rollout.agent`."""
    images = [_stored(picture.data, "input", budget) for picture in sample.images]
    calls = []
    for k, (code, execution) in enumerate(zip(codes, ran, strict=True)):
        first = len(images)
        images += [_stored(data, f"call:{k}", budget) for data in execution.images]
        calls.append(
            Call(
                tool=PYTHON,
                arguments=code,
                status=execution.status,
                error=execution.error,
                output=execution.output,
                images=tuple(range(first, len(images))),
                crops=recorded(execution.crops, first),
                seconds=execution.seconds,
            )
        )
    return Trajectory(sample_id=sample.id, source=sample.source, images=tuple(images), calls=tuple(calls))


def scorer_of(reward: RewardRecipe, budget: PixelBudget) -> Scorer:
    """A recipe's scorer, which knows the size at which the policy sees pictures."""
    return Scorer(reward, shown=lambda data: _shown(data, budget))


def _shown(data: bytes, budget: PixelBudget) -> tuple[int, int]:
    with Image.open(io.BytesIO(data)) as picture:
        width, height = picture.size
    return seen_size(width, height, min_pixels=budget.min_pixels, max_pixels=budget.max_pixels)


def _stored(data: bytes | None, origin: str, budget: PixelBudget) -> Stored:
    assert data is not None
    return Stored(data=data, origin=origin, seen=_shown(data, budget))


def _by_name(names: Sequence[str], known: Sequence[Picture], call: int) -> list[Picture | None]:
    """What is known about each returned picture: files are named by shot, displayed ones come in order."""
    displayed = [picture for picture in known if picture.displayed]
    found: list[Picture | None] = []
    for name in names:
        stem = name.partition(".")[0]
        if stem.startswith(f"p{call}_"):
            found.append(known[int(stem.partition("_")[2])])
        else:
            found.append(displayed.pop(0) if displayed else None)
    return found


def _floats(box: tuple[int, int, int, int]) -> Box:
    x0, y0, x1, y1 = box
    return float(x0), float(y0), float(x1), float(y1)

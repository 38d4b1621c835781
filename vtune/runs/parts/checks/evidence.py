"""What an evidence judge promises."""

import asyncio
import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from PIL import Image

from vtune.config import find, read_values
from vtune.errors import ServiceError, VtuneError
from vtune.judge.client import JudgeClient
from vtune.reward.evidence import Judges, score_call
from vtune.reward.evidence_judge import EVIDENCE, EvidencePart, Example
from vtune.reward.recipe import EvidenceLevels, RewardRecipe
from vtune.reward.score import with_flags
from vtune.runs.parts.checks.check import Broken, Check, tried
from vtune.schema.box import Box
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Call, Crop, Trajectory
from vtune.tools import python
from vtune.verifiers import choice

SIDE = 100
"""Of the example's picture, in pixels."""
TARGET: Box = (60, 60, 80, 80)
GOLD: Box = (56, 56, 84, 84)
NOTHING: Box = (5, 5, 33, 33)
"""Where the target is, a crop that shows it, and one that does not."""
BETWEEN: tuple[Box, ...] = ((50, 50, 70, 70), (52, 52, 88, 88), (40, 40, 95, 95), (62, 62, 78, 78))
"""Crops of a part of the target, and with much beside it: most looks of a policy that learns are such."""
ENLARGED = 4
"""Times that the policy's processor enlarges a crop."""


def check_evidence(name: str) -> list[Check]:
    """A look at the target earns its level, another nothing, and a failure is unscored."""
    part = EVIDENCE[name]
    example = (part.example or standard)()
    levels = levels_of(name, example.sample.source)

    def score(done: Trajectory) -> float:
        judges = Judges(levels, None)
        done = with_flags(done, levels, example.sample.evidence)
        return asyncio.run(score_call(example.sample, done, 0, judges)).score

    def earns(done: Trajectory, wanted: float, shows: bool) -> str:
        if not part.judges(example.sample):
            raise Broken("it does not judge the sample of its example", "give EvidencePart an `example`")
        if part.asks_model:
            return "a model decides"
        found = score(done)
        if found != wanted:
            raise Broken(f"it earns {found:g}, not {wanted:g}", "give a level of `levels`: full or miss")
        judge = Judges(levels, None).of(example.sample)
        flagged = with_flags(done, levels, example.sample.evidence)
        if asyncio.run(judge.shows_target(example.sample, flagged, 0)) is not shows:
            raise Broken(
                f"shows_target is {not shows}", f"let it be {shows} for this look, as the score says"
            )
        return f"{found:g}"

    def same() -> str:
        if part.asks_model:
            return "a model decides"
        first, again = score(example.gold), score(example.gold)
        if first != again:
            raise Broken(
                f"it earns {first:g} and {again:g}", "let the same look earn the same: keep no state"
            )
        return f"{first:g}, twice"

    return [
        tried("the gold look earns its level", lambda: earns(example.gold, levels.full, True)),
        tried("nothing shown earns nothing", lambda: earns(example.nothing, levels.miss, False)),
        tried("looks in between have a score", lambda: between(part, example, score, levels)),
        tried("it says what is too small", lambda: small(part, example, levels)),
        tried("the same look earns the same", same),
        tried("a failure is unscored, never 0", lambda: fails(part, example, levels)),
    ]


def between(
    part: EvidencePart, example: Example, score: Callable[[Trajectory], float], levels: EvidenceLevels
) -> str:
    """Whether looks that are neither good nor bad are judged, too, as is one whose place nobody knows."""
    if part.asks_model:
        return "a model decides"
    call, *others = example.gold.calls
    looks = [replace(example.gold, calls=(replace(call, crops=()), *others))]
    if part.example is None:
        data = example.sample.images[0].data
        assert data is not None
        picture = Image.open(io.BytesIO(data))
        looks += [_looked(example.sample, picture, box) for box in BETWEEN]
    scores = [score(done) for done in looks]
    for one in scores:
        if not levels.red_flag <= one <= levels.full:
            raise Broken(f"a look earns {one:g}", "give a level of `levels` (full, partial or miss)")
    return f"{min(scores):g} to {max(scores):g} for {len(scores)}"


def fails(part: EvidencePart, example: Example, levels: EvidenceLevels) -> str:
    """Whether a judge that cannot see says so instead of a score."""
    client = _Down() if part.asks_model else None
    judge = part.opened(levels, client)
    unreadable = tuple(replace(picture, data=b"not a picture") for picture in example.gold.images)
    seen = example.gold if part.asks_model else replace(example.gold, images=unreadable)
    if part.asks_model:
        seen = with_flags(seen, levels, example.sample.evidence)
    try:
        verdict = asyncio.run(judge.judge(example.sample, seen, 0))
    except VtuneError as error:
        return f"unscored: {error.what}"
    if not part.asks_model and verdict.score == levels.full:
        return "it reads no picture"
    raise Broken(
        f"{'no model answers' if part.asks_model else 'no picture can be read'}, and it scores "
        f"{verdict.score:g}",
        "let the error pass, or raise ServiceError",
    )


def small(part: EvidencePart, example: Example, levels: EvidenceLevels) -> str:
    """Whether a judge answers the audit's other question, and says no of its example's looks."""
    judge = part.opened(levels, _Down() if part.asks_model else None)
    if not callable(getattr(judge, "shows_small", None)):
        raise Broken("it has no `shows_small(sample, trajectory, k)`", "write it: the audit asks for it")
    if part.asks_model:
        return "a model decides"
    for done, what in ((example.gold, "the gold look"), (example.nothing, "a look at nothing")):
        flagged = with_flags(done, levels, example.sample.evidence)
        said = asyncio.run(judge.shows_small(example.sample, flagged, 0))
        if said is None or said:
            raise Broken(
                f"shows_small is {said!r} for {what}", "let it be True for targets too small to count alone"
            )
    return "neither of the two looks"


def reward_recipe() -> RewardRecipe:
    """The reward section by which parts are tried: that of `codev-tiny`."""
    return RewardRecipe.model_validate(read_values(find("codev-tiny", "recipes.rl"))["reward"])


def levels_of(name: str, source: str) -> EvidenceLevels:
    """Levels at which a miss earns 0, judged by one judge, where questions of a source need a look."""
    changed = {"miss": 0.0, "judges": (name,), "search_sources": (source,)}
    return reward_recipe().evidence.model_copy(update=changed)


def standard() -> Example:
    """A question about a part of a picture of soft blotches, a crop of that part, and one beside it."""
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
    picture = Image.fromarray(small).resize((SIDE, SIDE))
    sample = Sample(
        id="check/1",
        source="check",
        prompt=(Message("user", f"{IMAGE}\nWhat colour is the cup?\nOptions:\nA. red\nB. blue"),),
        images=(Picture(_png(picture)),),
        ground_truth="B",
        choices=("red", "blue"),
        verifier=choice.NAME,
        tools=(python.NAME,),
        evidence=(Evidence("cup", 0, TARGET),),
    )
    return Example(sample, _looked(sample, picture, GOLD), _looked(sample, picture, NOTHING))


def _looked(sample: Sample, picture: Image.Image, box: Box) -> Trajectory:
    x0, y0, x1, y1 = (int(side) for side in box)
    shown = Picture(
        _png(picture.crop((x0, y0, x1, y1))),
        origin="call:0",
        seen=(ENLARGED * (x1 - x0), ENLARGED * (y1 - y0)),
    )
    before = Picture(_png(picture), seen=(SIDE, SIDE))
    turns = ("<think>Let me look.<code>look()</code>", "</think><answer>B</answer>")
    call = Call(tool=python.NAME, arguments="{}", status="ok", images=(1,), crops=(Crop(0, box, 1),))
    return Trajectory(
        sample_id=sample.id,
        source=sample.source,
        messages=(Message("user", "?"), *(Message("assistant", turn) for turn in turns)),
        images=(before, shown),
        calls=(call,),
    )


class _Down(JudgeClient):
    """A model that does not answer."""

    def __init__(self) -> None:
        pass

    async def ask_for(self, *_: object, **__: object) -> object:  # type: ignore[override]
        raise ServiceError("the model does not answer")


def _png(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()

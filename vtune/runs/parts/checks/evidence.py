"""What an evidence judge promises."""

import asyncio
import copy
import io
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image

from vtune.config import find, read_values
from vtune.errors import BrokenPart, ServiceError, VtuneError
from vtune.reward.evidence import Judges, score_call
from vtune.reward.evidence_judge import EVIDENCE, EvidencePart, Example, opened_judge
from vtune.reward.recipe import EvidenceLevels, RewardRecipe
from vtune.reward.score import with_flags
from vtune.runs.parts.checks.check import Broken, Check, tried
from vtune.runs.parts.checks.faked import check_unpaid
from vtune.runs.parts.checks.model import ScriptedJudge
from vtune.schema.box import Box
from vtune.schema.decode import png_of
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Call, Crop, Trajectory
from vtune.schema.verdict import Verdict
from vtune.tools import python
from vtune.verifiers import choice

SIDE = 100
"""Side of the example's picture, in pixels."""
TARGET: Box = (60, 60, 80, 80)
GOLD: Box = (56, 56, 84, 84)
NOTHING: Box = (5, 5, 33, 33)
"""Where the target is, a crop that shows it, and one that does not."""
BETWEEN: tuple[Box, ...] = ((50, 50, 70, 70), (52, 52, 88, 88), (40, 40, 95, 95), (62, 62, 78, 78))
"""Crops with part of the target, or with much around it, like most looks of a policy that is learning."""
ENLARGED = 4
"""Factor by which the policy's processor enlarges a crop."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """A judge, and the looks of its example."""

    name: str
    part: EvidencePart

    @property
    def example(self) -> Example:
        return (self.part.example or standard)()

    @property
    def levels(self) -> EvidenceLevels:
        return levels_of(self.name, self.example.sample.source)

    @property
    def untold(self) -> str:
        """Why the score of a look cannot be known here; empty if it can."""
        if self.part.asks_model and self.part.says is None:
            return "not tested, because a model decides: give EvidencePart `says`, the model's replies"
        return ""

    def judges(self, shows: bool) -> Judges:
        """With a model that sees well, if the judge asks one: whether the pictures show the target."""
        says = self.part.says
        client = ScriptedJudge(lambda text: says(text, shows)) if says is not None else None
        return Judges(self.levels, client)

    def flagged(self, done: Trajectory) -> Trajectory:
        return with_flags(done, self.levels, self.example.sample.evidence)

    def verdict(self, done: Trajectory, shows: bool) -> Verdict:
        """The score of the first call; if a model judges, it answers `shows`."""
        return asyncio.run(score_call(self.example.sample, self.flagged(done), 0, self.judges(shows)))

    def earns(self, done: Trajectory, wanted: float, shows: bool) -> str:
        if not self.part.judges(self.example.sample):
            raise Broken(
                "the judge does not judge the sample of the example", "give EvidencePart an `example`"
            )
        if self.untold:
            return self.untold
        found = self.verdict(done, shows)
        if found.score != wanted:
            raise Broken(
                f"the look earns {found.score:g}, not {wanted:g}", "give a level of `levels`: full or miss"
            )
        if not found.why.strip():
            raise Broken(f"a level of {found.score:g} has no reason", "give the reason in `why`")
        judge = self.judges(shows).of(self.example.sample)
        if asyncio.run(judge.shows_target(self.example.sample, self.flagged(done), 0)) is not shows:
            raise Broken(f"shows_target is {not shows}", f"return {shows} for this look, as the score says")
        return f"{found.score:g}"

    def gold(self) -> str:
        return self.earns(self.example.gold, self.levels.full, True)

    def nothing(self) -> str:
        return self.earns(self.example.nothing, self.levels.miss, False)

    def between(self) -> str:
        """Whether looks that are neither good nor bad are judged too, and one whose place is unknown."""
        if self.untold:
            return self.untold
        example, levels = self.example, self.levels
        call, *others = example.gold.calls
        looks = [replace(example.gold, calls=(replace(call, crops=()), *others))]
        if self.part.example is None:
            data = example.sample.images[0].data
            assert data is not None
            picture = Image.open(io.BytesIO(data))
            looks += [_looked(example.sample, picture, box) for box in BETWEEN]
        scores = [self.verdict(done, True).score for done in looks]
        for one in scores:
            if not levels.red_flag <= one <= levels.full:
                raise Broken(f"a look earns {one:g}", "give a level of `levels` (full, partial or miss)")
        return f"{min(scores):g} to {max(scores):g} for {len(scores)}"

    def small(self) -> str:
        """Whether a judge answers the audit's other question, and says no for its example's looks."""
        sample = self.example.sample
        down = ScriptedJudge(None) if self.part.asks_model else None
        if not callable(getattr(self.part.opened(self.levels, down), "shows_small", None)):
            raise Broken(
                "the judge has no method `shows_small(sample, trajectory, k)`",
                "add this method: the audit calls it",
            )
        if self.untold:
            # Whatever the model would say: if it is down, the judge cannot know that something is shown.
            judge = opened_judge(self.name, self.levels, down)
            with suppress(ServiceError):
                if asyncio.run(judge.shows_small(sample, self.flagged(self.example.nothing), 0)):
                    raise Broken(
                        "shows_small is True, and no model answers", "ask the model, or return False"
                    )
            return self.untold
        looks = (
            (self.example.gold, True, "the gold look"),
            (self.example.nothing, False, "a look at nothing"),
        )
        for done, shows, what in looks:
            judge = self.judges(shows).of(sample)
            said = asyncio.run(judge.shows_small(sample, self.flagged(done), 0))
            if said is None or said:
                raise Broken(
                    f"shows_small is {said!r} for {what}",
                    "return True only for targets too small to count alone",
                )
        return "neither of the two looks is too small"

    def faked(self) -> str:
        """Whether it goes by what a call shows, not by what its code claims to show."""
        if self.part.reads_text:
            return "not tested: the judge reads what a call returns in words"
        return self.untold or check_unpaid(self.example.gold, self.paid, regions=self.part.example is None)

    def paid(self, done: Trajectory) -> str:
        """What it gives for a look that shows nothing and that flags do not catch; empty: nothing."""
        sample, done = self.example.sample, self.flagged(done)
        judge = self.judges(False).of(sample)
        score = asyncio.run(judge.judge(sample, done, 0)).score
        if score > self.levels.miss:
            return f"a score of {score:g}"
        asked = {"shows_target": judge.shows_target, "shows_small": judge.shows_small}
        said = [name for name, ask in asked.items() if asyncio.run(ask(sample, done, 0))]
        return f"{said[0]} is True" if said else ""

    def same(self) -> str:
        if self.untold:
            return self.untold
        first, again = (self.verdict(self.example.gold, True).score for _ in range(2))
        if first != again:
            raise Broken(
                f"one look earns {first:g}, then {again:g}", "let the same look earn the same: keep no state"
            )
        return f"{first:g}, twice"

    def unchanged(self) -> str:
        """The reward, the audit and the record read the same trajectory."""
        if self.untold:
            return self.untold
        sample, done = self.example.sample, self.flagged(self.example.gold)
        before = copy.deepcopy((sample, done))
        judge = self.judges(True).of(sample)
        for ask in (judge.judge, judge.shows_target, judge.shows_small):
            asyncio.run(ask(sample, done, 0))
        if (sample, done) != before:
            raise Broken("the judge changed the sample or the trajectory", "copy what you change")
        return "neither of them"

    def fails(self) -> str:
        """Whether a judge that cannot see reports that instead of a score."""
        part, example = self.part, self.example
        judge = opened_judge(self.name, self.levels, ScriptedJudge(None) if part.asks_model else None)
        unreadable = tuple(replace(picture, data=b"not a picture") for picture in example.gold.images)
        seen = self.flagged(example.gold) if part.asks_model else replace(example.gold, images=unreadable)
        try:
            verdict = asyncio.run(judge.judge(example.sample, seen, 0))
        except BrokenPart:
            raise
        except VtuneError as error:
            return f"unscored: {error.what}"
        if not part.asks_model and verdict.score == self.levels.full:
            return "the judge reads no picture"
        raise Broken(
            f"{'no model answers' if part.asks_model else 'no picture can be read'}, but the "
            f"judge gives the score {verdict.score:g}",
            "do not catch the error, or raise ServiceError",
        )


def check_evidence(name: str) -> list[Check]:
    """A look at the target earns its level, any other look nothing, and a failure stays unscored."""
    trial = _Trial(name, EVIDENCE[name])
    return [
        tried("a look at the target earns `full`", trial.gold),
        tried("nothing shown earns nothing", trial.nothing),
        tried("looks in between have a score", trial.between),
        tried("`shows_small` answers the audit", trial.small),
        tried("a faked look is not rewarded", trial.faked),
        tried("the same look earns the same", trial.same),
        tried("sample and trajectory are not changed", trial.unchanged),
        tried("a failure is unscored, never 0", trial.fails),
    ]


def reward_recipe() -> RewardRecipe:
    """The reward section that parts are tested with: that of `codev-tiny`."""
    return RewardRecipe.model_validate(read_values(find("codev-tiny", "recipes.rl"))["reward"])


def levels_of(name: str, source: str) -> EvidenceLevels:
    """Levels at which a miss earns 0, judged by one judge, where questions of a source need a look."""
    changed = {"miss": 0.0, "judges": (name,), "search_sources": (source,)}
    return reward_recipe().evidence.model_copy(update=changed)


def standard() -> Example:
    """A question about a part of a picture of soft blotches, a crop of that part, and one next to it."""
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
    picture = Image.fromarray(small).resize((SIDE, SIDE))
    sample = Sample(
        id="check/1",
        source="check",
        prompt=(Message("user", f"{IMAGE}\nWhat colour is the cup?\nOptions:\nA. red\nB. blue"),),
        images=(Picture(png_of(picture)),),
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
        png_of(picture.crop((x0, y0, x1, y1))),
        origin="call:0",
        seen=(ENLARGED * (x1 - x0), ENLARGED * (y1 - y0)),
    )
    before = Picture(png_of(picture), seen=(SIDE, SIDE))
    turns = ("<think>Let me look.<code>look()</code>", "</think><answer>B</answer>")
    call = Call(tool=python.NAME, arguments="{}", status="ok", images=(1,), crops=(Crop(0, box, 1),))
    return Trajectory(
        sample_id=sample.id,
        source=sample.source,
        messages=(Message("user", "?"), *(Message("assistant", turn) for turn in turns)),
        images=(before, shown),
        calls=(call,),
    )

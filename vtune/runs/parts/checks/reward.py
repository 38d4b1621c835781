"""What a part of the reward promises."""

import asyncio
import copy
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from vtune.judge.prompts import ANSWER_SYSTEM
from vtune.reward.evidence import Judges
from vtune.reward.part import (
    REWARDS,
    OwnParts,
    PartSection,
    RewardPart,
    Scene,
    Unscored,
    asked_for,
    scored,
)
from vtune.reward.recipe import RewardRecipe
from vtune.reward.score import score_parts
from vtune.runs.parts.checks.check import Broken, Check, in_time, section_of, tried
from vtune.runs.parts.checks.evidence import reward_recipe, standard
from vtune.runs.parts.checks.model import ScriptedJudge
from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict
from vtune.verifiers import judge
from vtune.verifiers.verifying import Verifying

REPLIES = (
    "<think>It is blue.</think><answer>B</answer>",
    "<think>It is red, I think.</think><answer>A</answer>",
    "",
    "I do not know. " * 200,
)
"""A right reply, a wrong one, an empty one and a long one."""
TIMES = 3
"""Times that a trajectory is scored; the quickest counts."""
SLOWEST = 0.1
"""Seconds per trajectory at most, ours: all that are scored at the same time wait for each other."""

Found = Verdict | Unscored


def check_reward(name: str) -> list[Check]:
    """Its scores stay in bounds, are reproducible, can be sent to processes, and are null if unknown."""
    trial = _Trial(name)
    return [
        tried("scores lie within the bounds", trial.bounds),
        tried("every score has a reason", trial.reasons),
        tried("the same trajectory scores the same", trial.same),
        tried("sample and trajectory are not changed", trial.unchanged),
        tried("the section refuses unknown keys", trial.strict),
        tried("scores and settings cross processes", trial.elsewhere),
        tried("null where other parts are null", trial.unscored),
        tried("what failed on our side is null", trial.failed),
        tried("fast enough", trial.fast),
    ]


@dataclass(frozen=True, slots=True)
class _Case:
    """A trajectory to be scored, and whether the model of `reward.judge` answers."""

    sample: Sample
    trajectory: Trajectory
    answers: bool = True


class _Trial:
    """A part, tested on small trajectories."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.part: RewardPart = REWARDS[name]

    def section(self, **more: object) -> PartSection:
        """Its section in a recipe, under `reward.parts` or its own key; a plain weight becomes one too."""
        values = {"weight": 1.0, **self.part.example, **more}
        return section_of(self.part.section, values, "give RewardPart an `example`")

    @cached_property
    def recipe(self) -> RewardRecipe:
        """A recipe that uses it, and whatever it may read from other parts."""
        section = self.section()
        if not self.part.column:
            own = section_of(OwnParts, {self.name: section.model_dump()}, "give RewardPart an `example`")
            return reward_recipe().model_copy(update={"parts": own})
        said = section.weight if self.part.section is PartSection else section
        return reward_recipe().model_copy(update={self.name: said})

    def trajectories(self) -> list[Trajectory]:
        """Trajectories without calls, one per reply, then two with calls."""
        example = standard()
        plain = replace(example.gold, calls=(), images=example.gold.images[:1])
        replies = (Message("assistant", reply) for reply in (*REPLIES, *self.part.replies))
        spoken = [replace(plain, messages=(Message("user", "?"), reply)) for reply in replies]
        return [*spoken, example.gold, example.nothing]

    def found(self, *cases: _Case) -> list[Found]:
        """Its scores for these cases, after the parts before it; without cases, for all trajectories."""
        cases = cases or tuple(_Case(standard().sample, done) for done in self.trajectories())

        async def all_of() -> list[Found]:
            async with Verifying(workers=1) as verifying:
                scenes = [
                    await score_parts(
                        Scene(one.sample, one.trajectory, self.recipe, verifying, self.judges(one.answers))
                    )
                    for one in cases
                ]
            return [scene.found[self.name] for scene in scenes]

        return asyncio.run(all_of())

    def judges(self, answers: bool) -> Judges:
        """The judges of the recipe, with a model that replies as the part specifies, or not at all."""

        def says(text: str) -> str:
            if self.part.says is None or text.startswith(ANSWER_SYSTEM):
                return "TRUE"
            return self.part.says(text)

        return Judges(self.recipe.evidence, ScriptedJudge(says if answers else None))

    @cached_property
    def first(self) -> list[Found]:
        """Its scores for all trajectories the first time."""
        return self.found()

    def bounds(self) -> str:
        known = [one.score for one in self.first if isinstance(one, Verdict)]
        missing = [one for one in self.first if isinstance(one, Unscored)]
        if not known:
            raise Broken(
                f"none of {len(missing)} trajectories is scored: {missing[0].why}",
                "correct `score`, or the values of `example`",
            )
        if missing:
            raise Broken(
                f"{len(missing)} of {len(self.first)} replies are unscored ({missing[0].why})",
                "let a reply that makes no sense earn the least: what is unscored is not trained on",
            )
        return f"{min(known):g} to {max(known):g} on {len(known)} trajectories"

    def reasons(self) -> str:
        first, *_ = [_why(one) for one in self.first]
        return first

    def same(self) -> str:
        for a, b in zip(self.first, self.found(), strict=True):
            if a != b:
                raise Broken(
                    f"{_told(a)} and then {_told(b)}: {b.why}", "a score must not depend on chance or state"
                )
        return f"{len(self.first)} trajectories, twice"

    def unchanged(self) -> str:
        """If one part changed something, later parts and the run's records would see that."""
        cases = [_Case(standard().sample, done) for done in self.trajectories()]
        before = copy.deepcopy(cases)
        self.found(*cases)
        if cases != before:
            raise Broken("the part changed the sample or the trajectory", "copy what you change")
        return f"{len(cases)} trajectories"

    def strict(self) -> str:
        self.section()
        try:
            self.section(no_such_key=1)
        except Broken:
            own = [key for key in self.part.section.model_fields if key not in PartSection.model_fields]
            return f"own keys: {', '.join(own) or 'none'}"
        raise Broken(
            "the section accepts an unknown key", "do not change `extra` of the section's model_config"
        )

    def elsewhere(self) -> str:
        for thing in (self.section(), self.first):
            if pickle.loads(pickle.dumps(thing)) != thing:
                raise Broken(
                    f"{type(thing).__name__} is different after pickling",
                    "define this class at the top level of the file",
                )
        return "scores and settings can be sent"

    def unscored(self) -> str:
        """If other parts are unknown, this part has no score either."""
        nobody = Unscored("for the check")
        usual = self.beside([Verdict(1.0, "")], Verdict(1.0, ""))
        found = self.beside([nobody], nobody)
        if isinstance(found, Unscored):
            return f"unscored: {_why(found)}"
        if isinstance(usual, Verdict) and found.score == usual.score:
            return "the part does not depend on others"
        raise Broken(f"other parts are unscored, but this part gives {found.score:g}", "return Unscored(why)")

    def beside(self, calls: Sequence[Found], others: Found) -> Found:
        """Its score for the gold trajectory, given what calls and the other parts earn."""
        example = standard()

        async def score() -> Found:
            async with Verifying(workers=1) as verifying:
                found = dict.fromkeys((name for name in REWARDS if name != self.name), others)
                judges = self.judges(True)
                scene = Scene(example.sample, example.gold, self.recipe, verifying, judges, calls, found)
                return await scored(self.name, asked_for(self.recipe)[self.name], scene)

        return asyncio.run(score())

    def failed(self) -> str:
        """An unreadable picture, or a model that is down, is not the policy's fault."""
        gold, sample = standard().gold, standard().sample
        unreadable = tuple(replace(picture, data=b"not a picture") for picture in gold.images)
        free = replace(sample, verifier=judge.NAME, ground_truth="a light blue", choices=())
        said = Message("assistant", "<think>It is blue.</think><answer>blue</answer>")
        spoken = replace(gold, messages=(*gold.messages[:1], said))
        pairs = {
            "a picture cannot be read": (
                _Case(sample, gold),
                _Case(sample, replace(gold, images=unreadable)),
            ),
            "the model does not answer": (_Case(free, spoken), _Case(free, spoken, answers=False)),
        }
        unscored: list[str] = []
        for what, (whole, broken) in pairs.items():
            usual, found = self.found(whole, broken)
            if isinstance(usual, Unscored):
                raise Broken(f"the part is unscored where nothing failed: {usual.why}", "correct `score`")
            if isinstance(found, Unscored):
                _why(found)
                unscored.append(what)
            elif found.score != usual.score:
                raise Broken(
                    f"{what}, but the part gives {found.score:g}, not {usual.score:g}",
                    "do not catch the error, or return Unscored(why)",
                )
        return (
            f"unscored where {' or '.join(unscored)}"
            if unscored
            else "the part needs neither pictures nor a model"
        )

    def fast(self) -> str:
        self.first  # noqa: B018 - one-off loading must not count towards a trajectory
        seconds = [self._seconds(done) for done in self.trajectories()]
        return in_time(max(seconds), SLOWEST, "a trajectory", "do less: all other scores wait meanwhile")

    def _seconds(self, done: Trajectory) -> float:
        async def score() -> float:
            async with Verifying(workers=1) as verifying:
                judges = self.judges(True)
                scene = await score_parts(Scene(standard().sample, done, self.recipe, verifying, judges))
                said: Any = asked_for(self.recipe)[self.name]
                seconds = []
                for _ in range(TIMES):
                    began = time.perf_counter()
                    await scored(self.name, said, scene)
                    seconds.append(time.perf_counter() - began)
                return min(seconds)

        return asyncio.run(score())


def _told(found: Found) -> str:
    return f"a score of {found.score:g}" if isinstance(found, Verdict) else "Unscored"


def _why(found: Found) -> str:
    """The reason; raises Broken if there is none."""
    if not isinstance(found.why, str) or not found.why.strip():
        raise Broken(f"the reason of {_told(found)} is {found.why!r}", "give the reason in `why`")
    return found.why

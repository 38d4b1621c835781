"""What a part of the reward promises."""

import asyncio
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vtune.reward.evidence import Judges
from vtune.reward.part import REWARDS, OwnParts, PartSection, RewardPart, Scene, Unscored, scored
from vtune.reward.score import score_trajectory
from vtune.runs.parts.checks.check import Broken, Check, tried
from vtune.runs.parts.checks.evidence import reward_recipe, standard
from vtune.schema.message import Message
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict
from vtune.verifiers.verifying import Verifying

REPLIES = (
    "<think>It is blue.</think><answer>B</answer>",
    "<think>It is red, I think.</think><answer>A</answer>",
    "",
    "I do not know. " * 200,
)
"""A right reply, a wrong one, an empty and a long one."""


def check_reward(name: str) -> list[Check]:
    """Its scores lie in its bounds, are the same every time, cross processes, and are null where unknown."""
    trial = _Trial(name, REWARDS[name])
    return [
        tried("scores lie within its bounds", trial.bounds),
        tried("the same trajectory scores the same", trial.same),
        tried("scores and settings cross processes", trial.elsewhere),
        tried("what it cannot score is null", trial.unscored),
    ]


@dataclass(frozen=True, slots=True)
class _Trial:
    """A part, tried on small trajectories."""

    name: str
    part: RewardPart

    @property
    def section(self) -> PartSection:
        return self.part.section.model_validate({"weight": 1.0, **self.part.example})

    def trajectories(self) -> list[Trajectory]:
        example = standard()
        plain = replace(example.gold, calls=(), images=example.gold.images[:1])
        replies = (Message("assistant", reply) for reply in (*REPLIES, *self.part.replies))
        spoken = [replace(plain, messages=(Message("user", "?"), reply)) for reply in replies]
        return [*spoken, example.gold, example.nothing]

    def rewards(self) -> list[Reward]:
        parts = OwnParts.model_validate({self.name: self.section.model_dump()})
        recipe = reward_recipe().model_copy(update={"parts": parts})
        sample = standard().sample

        async def all_of() -> list[Reward]:
            judges = Judges(recipe.evidence, None)
            async with Verifying(workers=1) as verifying:
                found = [
                    await score_trajectory(sample, done, recipe, verifying, judges)
                    for done in self.trajectories()
                ]
            return [one.trajectory.reward for one in found if one.trajectory.reward is not None]

        return asyncio.run(all_of())

    def bounds(self) -> str:
        scores = [reward.own[self.name] for reward in self.rewards()]
        known = [score for score in scores if score is not None]
        if not known:
            raise Broken(
                f"none of {len(scores)} trajectories is scored: {self.rewards()[0].why}",
                "correct `score`, or the values of `example`",
            )
        if len(known) < len(scores):
            why = next(reward.why for reward in self.rewards() if reward.own[self.name] is None)
            raise Broken(
                f"{len(scores) - len(known)} of {len(scores)} replies are unscored ({why})",
                "let a reply that makes no sense earn the least: what is unscored is not trained on",
            )
        return f"{min(known):g} to {max(known):g} on {len(known)} trajectories"

    def same(self) -> str:
        first, again = self.rewards(), self.rewards()
        for a, b in zip(first, again, strict=True):
            if a != b:
                raise Broken(
                    f"{a.own[self.name]} and then {b.own[self.name]}: {b.why}",
                    "take chance and state out of it",
                )
        return f"{len(first)} trajectories, twice"

    def elsewhere(self) -> str:
        for thing in (self.section, self.part, self.rewards()):
            if pickle.loads(pickle.dumps(thing)) != thing:
                raise Broken(
                    f"{type(thing).__name__} is another after pickling",
                    "define its class at the top of the file",
                )
        return "they can be sent"

    def unscored(self) -> str:
        example = standard()
        recipe = reward_recipe()
        nobody = Unscored("for the check")

        async def score(calls: Sequence[Verdict | Unscored], known: bool) -> Verdict | Unscored:
            names = ("accuracy", "format", "tool")
            found: dict[str, Verdict | Unscored] = dict.fromkeys(names, Verdict(1.0, "") if known else nobody)
            async with Verifying(workers=1) as verifying:
                judges = Judges(recipe.evidence, None)
                scene = Scene(example.sample, example.gold, recipe, verifying, judges, calls, found)
                return await scored(self.name, self.section, scene)

        usual = asyncio.run(score([Verdict(1.0, "")], True))
        found = asyncio.run(score([nobody], False))
        if isinstance(found, Unscored):
            return f"unscored: {found.why}"
        if isinstance(usual, Verdict) and found.score == usual.score:
            return "it does not depend on other parts"
        raise Broken(f"other parts are unscored, and it scores {found.score:g}", "return Unscored(why)")

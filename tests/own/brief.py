"""A custom part of the reward: short replies earn more."""

from pydantic import Field

from vtune.reward.part import REWARDS, PartSection, RewardPart, Scene
from vtune.schema.verdict import Verdict


class Brief(PartSection):
    """The settings of `brief`."""

    words: int = Field(gt=0)
    """A reply of this many or more earns nothing."""


async def brief(section: Brief, scene: Scene) -> Verdict:
    """Score 1 for an empty reply, less for every word, and 0 for a long one."""
    words = len(scene.trajectory.reply.split())
    return Verdict(max(0.0, 1.0 - words / section.words), f"{words} words")


REWARDS.add("brief", RewardPart(brief, section=Brief, example={"words": 20}))

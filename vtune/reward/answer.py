"""The part of the reward for the answer."""

from vtune.reward.part import REWARDS, RewardPart, Scene
from vtune.schema.verdict import Verdict


async def accuracy(weight: float, scene: Scene) -> Verdict:
    """What the sample's verifier says of the answer."""
    return await scene.verifying.verify(scene.trajectory.reply, scene.sample, judge=scene.judges.same_answer)


REWARDS.add("accuracy", RewardPart(accuracy))

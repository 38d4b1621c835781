"""The answer part of the reward."""

from functools import partial

from vtune.reward.part import REWARDS, RewardPart, Scene
from vtune.schema.verdict import Verdict
from vtune.verifiers import verifier_of
from vtune.verifiers.environment_reward import with_outcome


async def accuracy(weight: float, scene: Scene) -> Verdict:
    """The accuracy part: what the sample's verifier says about the answer."""
    sample, trajectory = scene.sample, scene.trajectory
    if verifier_of(sample).reads_outcome:
        sample = with_outcome(sample, trajectory.outcome)
    ask = partial(scene.judges.same_answer, pictures=trajectory.images[: len(sample.images)])
    return await scene.verifying.verify(trajectory.reply, sample, judge=ask)


REWARDS.add("accuracy", RewardPart(accuracy, column=True))

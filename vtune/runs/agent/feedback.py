"""Feedback on looks for recipes with `rollout.feedback`: what the reward's judge tells the policy."""

import asyncio

from vtune.judge.feedback_texts import HELPFUL, UNHELPFUL
from vtune.reward.evidence import Judges, needs_look
from vtune.reward.looks import with_looks
from vtune.rollout.verdicts import Feedback
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory


def feedback_of(judges: Judges) -> Feedback:
    """A function that reports whether a look shows the target, using the judges of the reward.

    Args:
        judges: The judges of the reward, opened before the first conversation begins.
    """

    async def verdict(sample: Sample, so_far: Trajectory, k: int) -> str:
        if not so_far.calls[k].images or not needs_look(sample, judges.levels):
            return ""
        looked = await asyncio.to_thread(with_looks, so_far, judges.levels)
        shows = await judges.of(sample).shows_target(sample, looked, k)
        return HELPFUL if shows else UNHELPFUL

    return verdict

"""Generates the rollouts of a step: prompts in order, run by the agent, each scored as it ends."""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from vtune.models.policy import Policy
from vtune.reward.schedule import Tightening
from vtune.reward.score import Scorer
from vtune.rollout.agent import Agent, Job
from vtune.rollout.engine import Engine
from vtune.rollout.stopwatch import Stopwatch
from vtune.runs.agent.exchanges import answers_differ
from vtune.runs.agent.scoring import draw_and_score
from vtune.runs.train.counterfactual import Counterfactuals
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.parquet import load_picture
from vtune.schema.sample import Sample
from vtune.schema.store import Store, sample_store
from vtune.schema.trajectory import Trajectory
from vtune.update.ranks import Ranks

LENDERS = 32
"""Number of prompts after a sample's own that are searched for one that lends its target; ours."""


class Drawing:
    """Generates and scores the rollouts of some of this process's prompts.

    Args:
        recipe: The run's recipe.
        agent: Generates the rollouts.
        scorer: Scores them.
        tightening: Knows the IoU thresholds of each step.
        ranks: This process and the others.
        policy: The policy, for its chat format and picture reader.
        engine: The agent's engine.
    """

    def __init__(
        self,
        recipe: RLRecipe,
        agent: Agent,
        scorer: Scorer,
        tightening: Tightening,
        ranks: Ranks,
        *,
        policy: Policy,
        engine: Engine,
    ) -> None:
        self._recipe = recipe
        self._agent = agent
        self._scorer = scorer
        self._tightening = tightening
        self._ranks = ranks
        self._prompts = sample_store([Path(name) for name in recipe.data])
        self.scoring = Stopwatch()
        """Runs while scores are pending after the last rollout has ended."""
        asked = recipe.reward.counterfactual is not None
        lend = partial(lent, self._prompts, recipe.seed)
        self._again = (
            Counterfactuals(recipe, policy, engine, scorer, lend, waiting=self.scoring) if asked else None
        )

    async def __call__(self, step: int, numbers: range) -> list[Trajectory]:
        """The scored rollouts of this process's prompts with these numbers."""
        asked = await asyncio.to_thread(prompts_of, self._prompts, self._recipe, numbers, self._ranks)
        samples = [sample for sample, _ in asked]
        iou = self._tightening.at(step)
        drawn = await draw_and_score(
            self._agent,
            self._scorer,
            jobs_of(asked, self._recipe, step, numbers, self._ranks),
            samples,
            iou=iou,
            waiting=self.scoring,
        )
        return drawn if self._again is None else await self._again(samples, drawn, step, iou=iou)


def lent(
    prompts: Store[tuple[Sample, Path]], seed: int, sample: Sample, number: int
) -> tuple[Sample, tuple[bytes, ...]] | None:
    """One of the prompts after a sample's own: same source, with a box and a different answer; with pictures.

    Args:
        prompts: The run's prompts.
        seed: Seed of their order.
        sample: The sample.
        number: Number of its prompt.
    """
    for other_number in range(number + 1, number + 1 + LENDERS):
        other, base = prompts.shuffled(other_number, seed=seed)
        if other.source == sample.source and other.evidence and answers_differ(sample, other):
            return other, tuple(load_picture(picture, base) for picture in other.images)
    return None


def prompts_of(
    store: Store[tuple[Sample, Path]], recipe: RLRecipe, numbers: range, ranks: Ranks
) -> list[tuple[Sample, tuple[bytes, ...]]]:
    """This process's prompts with these numbers, with their pictures."""
    found = []
    for number in numbers:
        sample, base = store.shuffled(number * ranks.world + ranks.rank, seed=recipe.seed)
        found.append((sample, tuple(load_picture(picture, base) for picture in sample.images)))
    return found


def jobs_of(
    samples: Sequence[tuple[Sample, tuple[bytes, ...]]],
    recipe: RLRecipe,
    step: int,
    numbers: range,
    ranks: Ranks,
) -> list[Job]:
    """A group of rollouts for each prompt."""
    jobs = []
    for number, (sample, images) in zip(numbers, samples, strict=True):
        group = number * ranks.world + ranks.rank
        for rollout in range(recipe.group_size):
            key = (recipe.seed, step, group, rollout)
            jobs.append(
                Job(sample=sample, images=images, group=group, rollout=rollout, policy_version=step, key=key)
            )
    return jobs

"""The learning part of a step: scored trajectories -> advantages, credit -> weight updates."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from vtune.advantage.credit import Transfer, token_advantages, transfer_credit
from vtune.advantage.group import group_advantages, overlong_penalty
from vtune.advantage.recipe import Advantage, Credit, Overlong
from vtune.errors import RunFailed
from vtune.models.device import device_thread
from vtune.schema.source_names import ALL
from vtune.schema.trajectory import Trajectory
from vtune.update.batch import Item
from vtune.update.deepspeed import Trainer
from vtune.update.ranks import Ranks
from vtune.update.stats import StepStats

MISMATCH = 0.5
"""Mean difference in nats above which the engine is taken to use a different model than the trainer (ours).

bfloat16 causes 0.01 to 0.04, and reduced precisions that engines offer cause a few times that; an engine
whose layers computed something else had 1 or more.
"""


def rewards(scored: Sequence[Trajectory], recipe: Advantage) -> list[float | None]:
    """The values that advantages are computed from: total rewards, minus the length penalty."""
    found = []
    for trajectory in scored:
        total = trajectory.reward.total if trajectory.reward else None
        if total is not None and recipe.overlong is not None:
            total += _penalty(trajectory, recipe.overlong)
        found.append(total)
    return found


def overlong_rows(scored: Sequence[Trajectory], recipe: Advantage) -> dict[str, dict[str, float]]:
    """`overlong_penalty` by source and overall: the mean length penalty of scored replies.

    `reward` in the metrics excludes it.
    """
    if recipe.overlong is None:
        return {}
    found: dict[str, list[float]] = defaultdict(list)
    for trajectory in scored:
        if trajectory.reward is not None and trajectory.reward.total is not None:
            for name in (trajectory.source, ALL):
                found[name].append(_penalty(trajectory, recipe.overlong))
    return {name: {"overlong_penalty": fmean(penalties)} for name, penalties in found.items()}


def _penalty(trajectory: Trajectory, recipe: Overlong) -> float:
    return overlong_penalty(
        sum(trajectory.loss_mask), limit=recipe.limit, buffer=recipe.buffer, factor=recipe.factor
    )


def with_advantages(scored: Sequence[Trajectory], recipe: Advantage) -> list[Trajectory]:
    """The trajectories with their group advantages; None if the reward is None."""
    advantages = group_advantages(
        rewards(scored, recipe), [t.group for t in scored], baseline=recipe.baseline
    )
    return [replace(t, advantage=advantage) for t, advantage in zip(scored, advantages, strict=True)]


def with_credit(learnt: Sequence[Trajectory], recipe: Credit) -> tuple[list[Trajectory], Transfer]:
    """The trajectories with their calls' advantages after credit transfer, and what was transferred."""
    transfer = transfer_credit(learnt, recipe)
    given = zip(learnt, transfer.call_advantages, strict=True)
    return [replace(t, call_advantages=advantages) for t, advantages in given], transfer


def updates_of(learnt: Sequence[Trajectory], count: int) -> list[list[Item]]:
    """The items of each of `count` updates; unscored trajectories are left out."""
    size = len(learnt) // count
    parts = [learnt[start : start + size] for start in range(0, len(learnt), size)]
    return [
        [item_of(t, updated=number > 0) for t in part if t.advantage is not None and any(t.loss_mask)]
        for number, part in enumerate(parts)
    ]


def item_of(trajectory: Trajectory, *, updated: bool) -> Item:
    """A trajectory as a training item: with an advantage on every token that the policy sampled.

    Args:
        trajectory: A trajectory with its advantage.
        updated: Whether its step has already updated the weights; if not, only tokens sampled by weights
            older than the step's are off-policy, which may be part of a conversation.
    """
    version = trajectory.policy_version
    sampled = [
        (logprob, drew)
        for logprob, drew in zip(trajectory.logprobs, trajectory.weight_versions, strict=True)
        if logprob is not None
    ]
    return Item(
        token_ids=trajectory.token_ids,
        images=tuple(picture.data for picture in trajectory.images if picture.data is not None),
        loss_mask=trajectory.loss_mask,
        advantages=token_advantages(trajectory),
        old_logprobs=tuple(logprob for logprob, _ in sampled),
        off_policy=tuple(updated or (drew is not None and drew < version) for _, drew in sampled),
    )


def check_mismatch(update: StepStats, engine: str) -> None:
    """Stop if the sampling model is not the one being trained: importance weights would hide it.

    Args:
        update: A step's first update, on tokens sampled by these very weights.
        engine: The engine that sampled them.

    Raises:
        RunFailed: If their log-probabilities differ by more than rounding explains.
    """
    # NaN comes from the weights, and has its own check.
    if update.mismatch_mean is None or not update.mismatch_mean > MISMATCH:
        return
    raise RunFailed(
        f"the engine ({engine}) and the trainer differ in log-probability by "
        f"{update.mismatch_mean:.2g} nats per token, for the same weights; rounding explains a few "
        "hundredths",
        fix="the engine does not compute the model that is being trained: try another "
        "rollout.engine, or the version of it that vtune names; --resume continues from an "
        "earlier checkpoint",
    )


class Learning:
    """Updates the weights.

    Args:
        trainer: Holds the weights.
        ranks: This process and the others.
        threads: Number of threads that torch may use.
        in_background: Whether to train in another thread, so that the next step can be generated meanwhile.
    """

    def __init__(self, trainer: Trainer, ranks: Ranks, *, threads: int, in_background: bool) -> None:
        self._trainer = trainer
        self._background = device_thread(ranks.device, threads=threads) if in_background else None

    async def __call__(self, updates: Sequence[Sequence[Item]]) -> list[StepStats]:
        """The updates of one step, in order."""
        if self._background is None:
            return self._all(updates)
        return await asyncio.get_running_loop().run_in_executor(self._background, self._all, updates)

    def _all(self, updates: Sequence[Sequence[Item]]) -> list[StepStats]:
        done = [self._trainer.step(items) for items in updates]
        return [one for one in done if one is not None]

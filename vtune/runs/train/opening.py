"""Opens what a reinforcement learning run is made of, in order, and closes it together."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vtune.models.policy import Policy
from vtune.report.progress import say
from vtune.reward.score import Scorer
from vtune.rollout.adapters import Adapters
from vtune.rollout.agent import Agent
from vtune.rollout.engine import Engine
from vtune.rollout.stopwatch import Stopwatch
from vtune.runs.agent.engines import training_engine
from vtune.runs.agent.opening import open_agent
from vtune.runs.agent.sandbox import may_run_code
from vtune.runs.train.checkpoint_manager import position
from vtune.runs.train.online_suites import Loaded
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.update.deepspeed import Trainer
from vtune.update.loading import starting_policy
from vtune.update.ranks import Ranks
from vtune.update.starting import start


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The components of a run."""

    recipe: RLRecipe
    out: Path
    ranks: Ranks
    policy: Policy
    trainer: Trainer
    engine: Engine
    agent: Agent
    scorer: Scorer
    waiting: Stopwatch
    """Runs while conversations wait for the sandbox."""
    runs_code: bool
    """Whether a row of the data may run code; if so, a sandbox was started."""
    done: int
    """Number of steps completed before the run resumed."""
    state: Mapping[str, Any] | None
    """The state that was saved after those steps."""
    began: float
    """When its weights were loaded, by `time.monotonic`."""


@asynccontextmanager
async def opened(
    recipe: RLRecipe, suites: Sequence[Loaded], out: Path, ranks: Ranks, *, resume: bool
) -> AsyncIterator[Opened]:
    """Load the weights, and open what generates and scores.

    Args:
        recipe: The run's recipe.
        suites: Its evaluation suites: the engine has room for their conversations too.
        out: The run folder.
        ranks: This process and the others.
        resume: Continue from the newest checkpoint.
    """
    torch.set_num_threads(recipe.update.threads)
    ranks = start(ranks)
    policy, trainer = _trainer(recipe, ranks)
    done, state = position(out / "checkpoints", trainer, ranks, resume=resume)
    waiting, runs_code = Stopwatch(), may_run_code(recipe.data)
    engine = _engine(recipe, suites, trainer, out / "weights", ranks, waiting)
    began = time.monotonic()
    searches, judgements = out / f"search-{ranks.rank}.jsonl", out / f"judge-{ranks.rank}.jsonl"
    eyes = policy.pictures
    scoring = Scorer(recipe.reward, judge_cache=judgements, shown=eyes.shown_size)
    async with (
        aclosing(engine),
        open_agent(
            recipe,
            engine,
            policy.chat,
            eyes,
            record=searches,
            announced=ranks.first,
            runs_code=runs_code,
            waiting=waiting,
            judges=scoring.judges,
        ) as agent,
        scoring as scorer,
    ):
        yield Opened(
            recipe=recipe,
            out=out,
            ranks=ranks,
            policy=policy,
            trainer=trainer,
            engine=engine,
            agent=agent,
            scorer=scorer,
            waiting=waiting,
            runs_code=runs_code,
            done=done,
            state=state,
            began=began,
        )


def _engine(
    recipe: RLRecipe,
    suites: Sequence[Loaded],
    trainer: Trainer,
    weights: Path,
    ranks: Ranks,
    waiting: Stopwatch,
) -> Engine:
    """The engine; `weights` is the folder through which servers receive the trained weights."""
    return training_engine(
        recipe.rollout,
        trainer.rollouts,
        model=recipe.model,
        dtype=recipe.update.dtype,
        threads=recipe.update.threads,
        ranks=ranks,
        folder=weights,
        waiting=waiting,
        also=[(one.suite.rollout, one.suite.images) for one in suites],
        adapters=_adapters(recipe),
    )


def _adapters(recipe: RLRecipe) -> Adapters | None:
    """The adapters that vLLM receives, if it does not receive all weights."""
    lora = recipe.update.lora
    if recipe.rollout.adapters == "merged" or lora is None:
        return None
    return Adapters(rank=lora.rank, alpha=lora.alpha, targets=lora.targets)


def _trainer(recipe: RLRecipe, ranks: Ranks) -> tuple[Policy, Trainer]:
    """The policy with the starting weights, and its trainer."""
    ranks.wait()
    policy = starting_policy(recipe.model, recipe.images, recipe.update, ranks)
    updates = recipe.steps * recipe.updates_per_step
    trainer = Trainer(
        policy, recipe.update, ranks, steps=updates, objective=recipe.loss, reference=recipe.model
    )
    if ranks.first:
        say(f"trainable parameters: {trainer.trainable}\n{policy.attention}")
    return policy, trainer

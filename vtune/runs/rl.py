"""Reinforcement training, told in the order in which the data flows (CodeV §4.3, stage 2)."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from vtune.advantage.misassignment import credit_row
from vtune.advantage.recipe import Advantage, Credit
from vtune.config import Strict
from vtune.errors import RecipeError, RunFailed, ServiceError
from vtune.metrics.by_source import ALL, by_source
from vtune.metrics.log import MetricsLog
from vtune.metrics.replies import examples, forget_replies, keep_replies
from vtune.metrics.trackers import Tracker, check_tracker
from vtune.models.pictures import PixelBudget
from vtune.models.policy import load_chat, load_policy, resolved
from vtune.report.progress import Steps, say
from vtune.reward.greeting import greet
from vtune.reward.recipe import RewardRecipe
from vtune.reward.schedule import Tightening
from vtune.reward.score import Scorer, check_evidence, check_keys, check_samples, check_unscored
from vtune.rollout.agent import Agent, Job, TrainingRollout
from vtune.rollout.stopwatch import Stopwatch
from vtune.runs.data import check_data
from vtune.runs.engines import check_vllm, training_engine
from vtune.runs.filling import Filled, Filling
from vtune.runs.folder import running
from vtune.runs.judge import check_judge
from vtune.runs.learning import Learning, rewards, updates_of, with_advantages, with_credit
from vtune.runs.rollouts import Rollouts
from vtune.runs.sandbox import SandboxRecipe, sandbox_of, say_tier
from vtune.runs.sft import save
from vtune.runs.step_row import Clock, groups_row, staleness, update_row
from vtune.runs.stopping import Stopping
from vtune.runs.tools import ToolsRecipe, check_indexes, check_tools, tools_of
from vtune.schema.parquet import load_picture, read_samples, write_trajectories
from vtune.schema.sample import Sample
from vtune.schema.store import Store, sample_store
from vtune.schema.trajectory import Trajectory
from vtune.update.checkpoint import checkpoint_step, newest_checkpoint
from vtune.update.deepspeed import Trainer, start
from vtune.update.lora import check_targets
from vtune.update.ranks import Ranks
from vtune.update.recipe import Checkpoints, PolicyLoss, Update
from vtune.update.schedule import warm_up_problem


class RLRecipe(Strict):
    """Everything that `vtune rl` needs; nothing is guessed."""

    model: str
    """Folder or hub name; with a KL, also the reference."""
    data: tuple[str, ...] = Field(min_length=1)
    """Parquet files of samples."""
    seed: int
    steps: int = Field(gt=0)
    prompts_per_step: int = Field(gt=0)
    """Over all processes."""
    group_size: int = Field(gt=1)
    """Rollouts of one prompt."""
    images: PixelBudget
    rollout: TrainingRollout
    sandbox: SandboxRecipe
    tools: ToolsRecipe | None = None
    """What samples may offer beside `python`; null: nothing."""
    reward: RewardRecipe
    advantage: Advantage
    credit: Credit | None = None
    """Null: every token has the advantage of its trajectory."""
    loss: PolicyLoss
    updates_per_step: int = Field(gt=0)
    """Updates from one step's rollouts; 1 is strictly on-policy."""
    update: Update
    checkpoints: Checkpoints
    trajectories_every: int = Field(gt=0)
    """Steps between those whose trajectories are kept, pictures included; the last step always is."""


def check_rl(recipe: RLRecipe, *, world: int) -> dict[str, Any]:
    """Everything that can be known before weights are loaded, for a run of `world` processes.

    Raises:
        VtuneError: With the problems found: rows, ground truths, judges, sizes.
    """
    check_sizes(recipe, world)
    if recipe.rollout.engine == "vllm":
        check_vllm()
    check_keys(recipe.reward)
    check_service(recipe.reward)
    for warning in doubts(recipe):
        say(f"warning: {warning}")
    load_chat(recipe.model)
    check_targets(recipe.model, recipe.update)
    facts = check_prompts(recipe)
    check_judge(recipe.reward, answers=facts["judged_answers"], looks=facts["judged_looks"])
    return facts


def doubts(recipe: RLRecipe) -> list[str]:
    """What a recipe does and its author may not have meant; it can be run all the same.

    With one update of what the same weights have drawn, every ratio is 1, and all algorithms have the
    gradient of `grpo`, whose recipes do not claim to differ.
    """
    found = []
    algorithm = recipe.loss.algorithm
    if algorithm != "grpo" and recipe.updates_per_step == 1 and recipe.rollout.staleness == 0:
        found.append(
            f"with one on-policy update a step, loss.algorithm {algorithm} has the gradient of grpo with the "
            "same aggregation; to differ, set updates_per_step to 4 (GSPO §5.1) or rollout.staleness to 1"
        )
    return found


def check_service(reward: RewardRecipe) -> None:
    """See that a reward service answers; where another can stand in for one that does not, say so.

    Raises:
        ServiceError: If none answers.
        RecipeError: If one refuses.
    """
    silent = greet(reward)
    if reward.service is not None and len(silent) == len(reward.service.urls):
        raise ServiceError(
            "no reward service answers",
            where="; ".join(silent),
            fix="start one (`vtune serve rewards`), or mend reward.service",
        )
    for line in silent:
        say(f"a reward service does not answer, the others stand in for it: {line}")


def check_sizes(recipe: RLRecipe, world: int) -> None:
    """See that a step splits over `world` processes and its updates.

    Raises:
        RecipeError: If it does not, or the policy is to be drawn from at another temperature than 1, or in a
            way that its engine cannot.
    """
    _check_engine(recipe.rollout)
    if recipe.prompts_per_step % world:
        raise RecipeError(
            f"prompts_per_step {recipe.prompts_per_step} does not split over {world} processes",
            fix="make it a multiple of the processes",
        )
    rollouts = recipe.prompts_per_step * recipe.group_size
    if rollouts // world % recipe.updates_per_step:
        raise RecipeError(
            f"{rollouts // world} rollouts a process do not split into {recipe.updates_per_step} updates",
            fix="let it divide prompts_per_step x group_size / processes",
        )
    if recipe.rollout.temperature != 1.0:
        raise RecipeError(
            f"rollout.temperature is {recipe.rollout.temperature}",
            fix="train at 1.0: log-probabilities are those of the policy itself, not of a tempered one",
        )


def check_prompts(recipe: RLRecipe) -> dict[str, Any]:
    """See that every row of the data can be asked and judged; returns the sizes of the run.

    Raises:
        VtuneError: With the problems found.
    """
    paths = [Path(name) for name in recipe.data]
    check_data(paths)
    check_indexes(recipe.tools)
    offered = (sample for path in paths for sample in read_samples(path))
    check_tools(offered, recipe.tools, recipe.rollout.prompt)
    found = check_samples((sample for path in paths for sample in read_samples(path)), recipe.reward)
    check_evidence(found)
    problem = warm_up_problem(recipe.update, updates=recipe.steps * recipe.updates_per_step)
    if problem:
        say(f"warning: {problem}")
    return {
        "samples": len(sample_store(paths)),
        "steps": recipe.steps,
        "rollouts_per_step": recipe.prompts_per_step * recipe.group_size,
        "judged_looks": found.judged_looks,
        "judged_answers": found.judged_answers,
    }


def _check_engine(rollout: TrainingRollout) -> None:
    if rollout.engine == "vllm":
        return
    if rollout.servers:
        raise RecipeError("rollout.servers are vLLM's", fix="set rollout.engine to vllm, or servers to []")
    if rollout.staleness:
        raise RecipeError(
            "rollout.staleness is 1, and the transformers engine draws with the weights that are trained",
            fix="set rollout.engine to vllm, or staleness to 0",
        )


def run_rl(recipe: RLRecipe, out: Path, *, resume: bool, track: str | None = None) -> dict[str, Any]:
    """Train; weights, metrics, trajectories and checkpoints go to `out`.

    Args:
        recipe: What to do.
        out: The run folder.
        resume: Continue the run in it.
        track: Name of a tracker that is told what `metrics.jsonl` is told, and shown trajectories.

    Returns:
        `model` (folder of the trained weights), `steps`, `frozen` (parts whose weights were seen to be those
        of the start), `seconds`, and `last`, the last step's row over all sources.
    """
    check_tracker(track)
    ranks = Ranks.of_this_process()
    recipe = recipe.model_copy(update={"model": resolved(recipe.model)})
    if ranks.first:
        check_rl(recipe, world=ranks.world)
    with running(out, recipe, [Path(name) for name in recipe.data], resume=resume, ranks=ranks):
        return asyncio.run(_train(recipe, out, ranks, resume=resume, track=track))


async def _train(
    recipe: RLRecipe, out: Path, ranks: Ranks, *, resume: bool, track: str | None
) -> dict[str, Any]:
    torch.set_num_threads(recipe.update.threads)
    start(ranks)
    ranks.wait()
    policy = load_policy(recipe.model, budget=recipe.images, dtype=recipe.update.dtype, device=ranks.device)
    updates = recipe.steps * recipe.updates_per_step
    trainer = Trainer(
        policy, recipe.update, ranks, steps=updates, objective=recipe.loss, reference=recipe.model
    )
    checkpoints = out / "checkpoints"
    if ranks.first:
        say(f"trainable parameters: {trainer.trainable}")
    found = newest_checkpoint(checkpoints) if resume else None
    done = checkpoint_step(found) if found else 0
    state = trainer.load(found / "deepspeed") if found else None
    tightening = Tightening(recipe.reward.iou, steps=recipe.steps, saved=state)
    share = recipe.prompts_per_step // ranks.world
    # Prompts that each process has taken; a step takes its share where there are no refills.
    taken: list[int] = (state or {}).get("taken", [done * share] * ranks.world)
    keep = recipe.checkpoints.keep
    prompts = sample_store([Path(name) for name in recipe.data])
    waiting = Stopwatch()
    engine = training_engine(
        recipe.rollout,
        trainer.rollouts,
        model=recipe.model,
        dtype=recipe.update.dtype,
        threads=recipe.update.threads,
        first=ranks.first,
        folder=out / "weights",
        waiting=waiting,
    )

    scoring = Stopwatch()

    async def drawn(step: int, numbers: range) -> list[Trajectory]:
        asked = _prompts(prompts, recipe, numbers, ranks)
        found = await agent.run(_jobs(asked, recipe, step, numbers, ranks))
        with scoring:
            samples = [sample for sample, _ in asked]
            return await scorer.score(samples, found, iou=tightening.at(step))

    filling = Filling(
        drawn,
        lambda found: rewards(found, recipe.advantage),
        share=share,
        refills=recipe.advantage.refills,
        taken=taken[ranks.rank],
    )

    async def draw(step: int) -> Filled:
        # An engine with weights of its own was given them before.
        with trainer.whole() if recipe.rollout.engine == "transformers" else nullcontext():
            return await filling.of(step)

    rollouts = Rollouts(
        draw,
        engine,
        trainer.weights,
        ranks.wait,
        staleness=recipe.rollout.staleness,
        steps=recipe.steps,
    )
    began = time.monotonic()
    rows: dict[str, dict[str, float]] = {}
    cache = out / f"judge-{ranks.rank}.jsonl"
    async with (
        aclosing(engine),
        sandbox_of(recipe.sandbox, sessions=recipe.rollout.max_batch) as sandbox,
        tools_of(recipe.tools, out / f"search-{ranks.rank}.jsonl") as tools,
        Scorer(recipe.reward, judge_cache=cache, shown=policy.pictures.shown_size) as scorer,
        aclosing(rollouts),
    ):
        if ranks.first:
            say_tier(sandbox)
        agent = Agent(
            engine, sandbox, policy.chat, policy.pictures, recipe.rollout, waiting=waiting, tools=tools
        )

        def keep_now(done: int) -> None:
            state = {"taken": taken, **tightening.state}
            save(trainer, policy, recipe.model, checkpoints, done, ranks, keep=keep, state=state)

        aside = recipe.rollout.staleness > 0
        learn = Learning(trainer, ranks, threads=recipe.update.threads, aside=aside)
        log = MetricsLog(out / "metrics.jsonl", first_step=done) if ranks.first else None
        if ranks.first:
            forget_replies(out, done)
        settings = recipe.model_dump(mode="json")
        tracker = Tracker(track if ranks.first else None, out, settings, first_step=done, warn=say)
        stopping = Stopping(recipe.checkpoints, recipe.steps, ranks, done=done)
        with stopping, tracker, Steps("rl", recipe.steps, done=done, show=ranks.first) as progress:
            for step in range(done, recipe.steps):
                clock = Clock()
                try:
                    filled = await rollouts.of(step)
                    failure = None
                except RunFailed as error:
                    failure = error
                # One process may have lost its engine alone; all stop together, with all that is trained.
                failures = [one for one in ranks.gather(failure) if one is not None]
                if failures:
                    if step > stopping.saved:
                        keep_now(step)
                    raise failures[0]
                clock.lap("rollout")
                scored = filled.trajectories
                everyone = [
                    t for share in ranks.gather([_without_pictures(t) for t in scored]) for t in share
                ]
                check_unscored(everyone, recipe.reward.max_unscored)
                # Before anything is awaited: the next step may be scored while this one trains.
                tightened = tightening.after(step, everyone)
                learnt = with_advantages(scored, recipe.advantage)
                credit: dict[str, float] = {}
                if recipe.credit is not None:
                    started = time.monotonic()
                    learnt, transfer = with_credit(learnt, recipe.credit)
                    credit["seconds_credit"] = time.monotonic() - started
                    credit |= credit_row(ranks.gather(transfer), recipe.credit)
                of_kept = [t for t in learnt if t.group in filled.kept]
                stats = await learn(updates_of(of_kept, recipe.updates_per_step))
                clock.lap("update")
                if step % recipe.trajectories_every == 0 or step + 1 == recipe.steps:
                    file = out / "trajectories" / _file_name(step, ranks)
                    write_trajectories(file, learnt, run=out)
                    tracker.trajectories(step, learnt)
                rows = by_source(everyone, evidence_score=recipe.reward.evidence.full)
                rows[ALL] |= update_row(stats) | clock.row(stats) | credit | tightened
                drawn_by = ranks.gather(replace(filled, trajectories=[]))
                taken = [one.taken for one in drawn_by]
                rows[ALL] |= groups_row(
                    drawn_by, asked=recipe.prompts_per_step, refills=bool(recipe.advantage.refills)
                )
                rows[ALL]["seconds_reward"] = scoring.take()
                rows[ALL]["seconds_sandbox"] = waiting.take()
                rows[ALL]["staleness"] = staleness(everyone, step)
                rows[ALL]["sessions_lost"] = sum(ranks.gather(agent.take_lost()))
                if log:
                    log.write(step, rows)
                    keep_replies(out, step, examples(everyone, each=REPLIES))
                tracker.numbers(step, rows)
                shown = {source: {name: row.get(name) for name in _SHOWN} for source, row in rows.items()}
                progress.advance(shown[ALL], shown)
                stopping.after(step + 1, partial(keep_now, step + 1))
    frozen = trainer.check_frozen()
    if frozen and ranks.first:
        say(f"frozen, and bit by bit as at the start: {', '.join(frozen)}")
    return {
        "model": str(newest_checkpoint(checkpoints)),
        "steps": recipe.steps,
        "frozen": list(frozen),
        "seconds": time.monotonic() - began,
        "last": rows.get(ALL, {}),
    }


REPLIES = 2
"""Of each source and step: the worst and the best are kept as text (ours)."""

_SHOWN = (
    "reward",
    "accuracy",
    "evidence_rate",
    "red_flags",
    "tool_calls",
    "unscored",
    "entropy",
    "grad_norm",
    "seconds",
)


def _prompts(
    store: Store[tuple[Sample, Path]], recipe: RLRecipe, numbers: range, ranks: Ranks
) -> list[tuple[Sample, tuple[bytes, ...]]]:
    """This process's prompts of these numbers, with their pictures."""
    found = []
    for number in numbers:
        sample, base = store.shuffled(number * ranks.world + ranks.rank, seed=recipe.seed)
        found.append((sample, tuple(load_picture(picture, base) for picture in sample.images)))
    return found


def _jobs(
    samples: Sequence[tuple[Sample, tuple[bytes, ...]]],
    recipe: RLRecipe,
    step: int,
    numbers: range,
    ranks: Ranks,
) -> list[Job]:
    jobs = []
    for number, (sample, images) in zip(numbers, samples, strict=True):
        group = number * ranks.world + ranks.rank
        for rollout in range(recipe.group_size):
            key = (recipe.seed, step, group, rollout)
            jobs.append(
                Job(sample=sample, images=images, group=group, rollout=rollout, policy_version=step, key=key)
            )
    return jobs


def _without_pictures(trajectory: Trajectory) -> Trajectory:
    """What other processes need of a trajectory: its numbers, and what the policy wrote."""
    written = tuple(message for message in trajectory.messages if message.role == "assistant")
    return replace(trajectory, images=(), messages=written)


def _file_name(step: int, ranks: Ranks) -> str:
    return f"step-{step:06d}.parquet" if ranks.world == 1 else f"step-{step:06d}-rank-{ranks.rank}.parquet"

"""Supervised training on traces: the cold start of CodeV §4.3, stage 1."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import torch

from vtune.errors import DataError, RecipeError, RunFailed
from vtune.metrics.trackers import check_tracker
from vtune.models.chat import Chat
from vtune.models.pictures import PictureReader
from vtune.models.policy import Policy, load_chat, load_reader
from vtune.models.shape import find_shape
from vtune.models.source import resolved
from vtune.report.progress import say
from vtune.report.training import Training
from vtune.rollout.transcript import Transcript, check_trace, replay
from vtune.rollout.transformers import TransformersEngine
from vtune.runs.agent.engines import drawing_threads
from vtune.runs.agent.prompt_lengths import MEASURED
from vtune.runs.folder import running
from vtune.runs.train.checkpoint_manager import CheckpointManager, position
from vtune.runs.train.loopback_services import check_services_here
from vtune.runs.train.online_eval import OnlineEvaluation
from vtune.runs.train.online_suites import (
    Loaded,
    check_pinned,
    check_suites,
    idle_judge_of,
    load_suites,
    pin_suites,
    values_of,
)
from vtune.runs.train.profile import Profile, check_profile
from vtune.runs.train.record import Record
from vtune.runs.train.sft_recipe import SFTRecipe
from vtune.runs.train.step_row import speed_row
from vtune.runs.train.stopping import Stopping
from vtune.schema.parquet import read_trajectories
from vtune.schema.source_names import ALL
from vtune.schema.store import Store, trajectory_store
from vtune.schema.trajectory import Trajectory
from vtune.update.batch import Item
from vtune.update.checkpoint import newest_checkpoint
from vtune.update.deepspeed import Trainer
from vtune.update.flops import peak_flops
from vtune.update.loading import starting_policy
from vtune.update.lora import check_targets
from vtune.update.ranks import Ranks
from vtune.update.schedule import warm_up_problem
from vtune.update.sequence import check_sequence_parallel
from vtune.update.starting import start

COUNTED = 200
"""If a trace is too long, at most this many are measured to count the others; ours."""


def check_sft(recipe: SFTRecipe, suites: Sequence[Loaded], *, world: int) -> None:
    """Check everything that can be checked before weights are loaded, for a run of `world` processes.

    Raises:
        VtuneError: With the first problem found.
    """
    load_chat(recipe.model)
    found = find_shape(recipe.model, None)
    check_sequence_parallel(recipe.update.sequence_parallel, world, found and found[0])
    check_targets(recipe.model, recipe.update)
    check_suites(suites, model=recipe.model, world=world)
    check_traces(recipe)
    check_lengths(recipe)


def check_traces(recipe: SFTRecipe) -> dict[str, Any]:
    """Check that every trace can be replayed; returns the sizes of the run.

    Raises:
        VtuneError: With the first problem found.
    """
    paths = [Path(name) for name in recipe.data]
    for path in paths:
        for number, trace in enumerate(read_trajectories(path)):
            check_trace(trace, where=f"{path}, row {number}")
    traces = trajectory_store(paths)
    steps = steps_of(recipe, traces=len(traces))
    if steps == 0:
        raise RecipeError(
            f"{len(traces)} traces x {recipe.epochs} epochs do not fill one batch of {recipe.batch_size}",
            fix="lower batch_size or give more data",
        )
    problem = warm_up_problem(recipe.update, updates=steps)
    if problem:
        say(f"warning: {problem}")
    return {"traces": len(traces), "steps": steps}


def steps_of(recipe: SFTRecipe, *, traces: int) -> int:
    """The number of updates in a run on this many traces."""
    # Exact decimals, as a user writes them: 90 traces x 0.7 epochs is 63, but slightly less in floats.
    epochs = Fraction(str(recipe.epochs or 0))
    return recipe.steps or int(traces * epochs) // recipe.batch_size


def check_lengths(recipe: SFTRecipe) -> None:
    """Check that the traces used first are not too long; the others are checked when their turn comes.

    Raises:
        DataError: If one is, or the tokenizer cannot be loaded.
    """
    chat, reader = load_reader(recipe.model, recipe.images)
    traces = trajectory_store([Path(name) for name in recipe.data])
    for number in range(min(len(traces), MEASURED)):
        _replayed(recipe, traces, number, traces.shuffled(number, seed=recipe.seed), chat, reader)


def run_sft(
    recipe: SFTRecipe, out: Path, *, resume: bool, track: str | None = None, profile: int | None = None
) -> dict[str, Any]:
    """Train on the traces; weights, metrics and checkpoints go to `out`.

    Args:
        recipe: The recipe.
        out: The run folder.
        resume: Continue the run in the folder.
        track: Name of a tracker that receives the contents of `metrics.jsonl`.
        profile: The step to record with torch's profiler, counted from 1.

    Returns:
        `model` (folder of the trained weights), `steps`, `traces`, `loss` of the last update (None if nothing
        was left to do), `seconds`.
    """
    check_tracker(track)
    recipe = recipe.model_copy(update={"model": resolved(recipe.model)})
    suites = load_suites(recipe.eval, kind="transformers")
    ranks = Ranks.of_this_process()
    if ranks.first:
        # The others wait for it in `start`, and are ended if it fails.
        check_sft(recipe, suites, world=ranks.world)
    data = [Path(name) for name in recipe.data]
    traces = len(trajectory_store(data))
    steps = steps_of(recipe, traces=traces)
    check_profile(profile, done=0, steps=steps)
    if ranks.first:
        check_pinned(suites, out)
    idle = partial(idle_judge_of, suites)
    check_services_here(recipe.model_dump(mode="json"), values_of(suites), ranks, idle_judge=idle)
    with running(out, recipe, data, resume=resume, ranks=ranks, steps=steps):
        if ranks.first:
            pin_suites(suites, out)
        trained = _train(recipe, suites, out, ranks, steps, resume=resume, track=track, profile=profile)
        return {"traces": traces, **trained}


def _train(
    recipe: SFTRecipe,
    suites: Sequence[Loaded],
    out: Path,
    ranks: Ranks,
    steps: int,
    *,
    resume: bool,
    track: str | None,
    profile: int | None,
) -> dict[str, Any]:
    torch.set_num_threads(recipe.update.threads)
    ranks = start(ranks)
    ranks.wait()
    policy = starting_policy(recipe.model, recipe.images, recipe.update, ranks)
    trainer = Trainer(policy, recipe.update, ranks, steps=steps, objective=None, reference=recipe.model)
    done, _ = position(out / "checkpoints", trainer, ranks, resume=resume)
    profiled = Profile.of_run(profile, out, ranks, done=done, steps=steps)
    if ranks.first:
        say(f"trainable parameters: {trainer.trainable}\n{policy.attention}")
    record = Record(out, ranks, recipe.model_dump(mode="json"), track=track, done=done)
    checkpoints = CheckpointManager(recipe.checkpoints, out, ranks)
    stopping = Stopping(recipe.checkpoints, steps, ranks, done=done)
    evaluation = OnlineEvaluation(
        recipe.eval,
        suites,
        steps=steps,
        done=done,
        policy=policy,
        gathered=trainer.gathered,
        ranks=ranks,
        out=out,
        record=record,
        checkpoints=checkpoints,
        stop_requested=lambda: stopping.requested,
    )
    stream = _Stream(recipe, policy, ranks, steps=steps)
    began = time.monotonic()
    loss: float | None = None
    save = partial(checkpoints.save, trainer, policy, recipe.model)
    evaluate = partial(_evaluate, evaluation, trainer, stopping, save, checkpoints.finish)
    update = partial(_update, trainer, stream, processes=ranks.world, peak=peak_flops(ranks, recipe.update))
    with checkpoints, stopping, record, Training("sft", out, steps, done=done, show=ranks.first) as progress:
        for step in range(done, steps):
            evaluate(step)
            with profiled.of(step):
                row = update(step)
            loss = row.get("loss", loss)
            record.write(step, {ALL: row})
            progress.advance({"loss": row.get("loss"), "grad": row.get("grad_norm")})
            stopping.after(step + 1, partial(save, step + 1), checkpoints.finish)
            checkpoints.finish_written()
        evaluate(steps)
    trainer.check_frozen()
    return {
        "model": str(newest_checkpoint(out / "checkpoints")),
        "steps": steps,
        "loss": loss,
        "seconds": time.monotonic() - began,
    }


def _evaluate(
    evaluation: OnlineEvaluation,
    trainer: Trainer,
    stopping: Stopping,
    save: Callable[[int], object],
    finish: Callable[[], object],
    step: int,
) -> None:
    """Evaluate all suites due after `step` updates; the trained model itself generates.

    If that fails, or the run is told to stop, what has been trained is saved first.
    """
    try:
        for one in evaluation.due(step):
            drawn = one.suite.rollout
            engine = TransformersEngine(
                trainer.rollouts,
                max_batch=drawn.max_batch,
                threads=drawing_threads(drawn, torch.get_num_threads()),
            )
            if asyncio.run(evaluation.of(one, step, engine)):
                stopping.stop(step, partial(save, step), finish)
    except RunFailed as failure:
        # All processes raise this together.
        stopping.fail(failure, step, partial(save, step), finish)


def _update(
    trainer: Trainer, stream: "_Stream", step: int, *, processes: int, peak: float | None
) -> dict[str, float]:
    """One update; returns its row of the metrics."""
    began = time.monotonic()
    stats = trainer.step(stream.batch(step))
    if stats is None:
        raise RunFailed(f"the traces of update {step} have no assistant token", fix="look at the data")
    row = {"skipped": 1.0, "learning_rate": stats.learning_rate}
    if not stats.skipped:
        row = {
            "loss": stats.loss,
            "grad_norm": stats.grad_norm,
            "skipped": 0.0,
            "learning_rate": stats.learning_rate,
            "entropy": stats.entropy,
        }
        row |= {f"grad_norm_{group}": norm for group, norm in stats.grad_norms.items()}
    seconds = time.monotonic() - began
    speed = speed_row([stats], stats.tokens / seconds, seconds, processes=processes, peak=peak)
    return row | {"seconds": seconds} | speed


class _Stream:
    """The traces of each update, reshuffled every epoch; depends only on the step.

    Args:
        recipe: The run's recipe.
        policy: The policy, for its tokenizer and picture reader.
        ranks: This process and the others.
        steps: Number of steps in the whole run.
    """

    def __init__(self, recipe: SFTRecipe, policy: Policy, ranks: Ranks, *, steps: int) -> None:
        self._recipe = recipe
        self._policy = policy
        self._ranks = ranks
        self._steps = steps
        self._traces = trajectory_store([Path(name) for name in recipe.data])
        self._ahead: dict[int, Future[list[Trajectory]]] = {}
        """Steps being read: their futures, by step."""

    def batch(self, step: int) -> list[Item]:
        """This process's share of an update's traces; starts reading those of the next update."""
        ahead = self._ahead.pop(step, None)
        traces = self._read(step) if ahead is None else ahead.result()
        items = [self._item(*one) for one in zip(self._numbers(step), traces, strict=True)]
        if step + 1 < self._steps:
            # In a single thread: the others are needed for the pictures of this update.
            self._ahead[step + 1] = self._policy.pictures.submit(self._read, step + 1)
        return items

    def _read(self, step: int) -> list[Trajectory]:
        """The traces of an update; the pictures that they show are decoded and cut into patches."""
        seed = self._recipe.seed
        traces = [self._traces.shuffled(number, seed=seed) for number in self._numbers(step)]
        for trace in traces:
            for number in {number for message in trace.messages for number in message.images}:
                data = trace.images[number].data
                if data is not None:
                    self._policy.pictures.read(data)
        return traces

    def _numbers(self, step: int) -> range:
        """This process's share of an update: indices into the order of the whole run."""
        size = self._recipe.batch_size
        return range(step * size + self._ranks.rank, (step + 1) * size, self._ranks.world)

    def _item(self, number: int, trace: Trajectory) -> Item:
        chat, pictures = self._policy.chat, self._policy.pictures
        book = _replayed(self._recipe, self._traces, number, trace, chat, pictures)
        images = tuple(picture.data for picture in book.images if picture.data is not None)
        return Item(tuple(book.token_ids), images, tuple(book.loss_mask))


def _replayed(
    recipe: SFTRecipe,
    traces: Store[Trajectory],
    number: int,
    trace: Trajectory,
    chat: Chat,
    reader: PictureReader,
) -> Transcript:
    """A trace as tokens and pictures.

    Args:
        recipe: The run's recipe.
        traces: All traces, which are counted if this one is too long.
        number: Its index in the order of the whole run.
        trace: The trace at this index.
        chat: Creates the tokens.
        reader: Creates the patches.
    """
    book = replay(trace, chat, reader)
    if len(book.token_ids) > recipe.max_tokens:
        raise _too_long(recipe, traces, number, chat, reader)
    return book


def _too_long(
    recipe: SFTRecipe, traces: Store[Trajectory], number: int, chat: Chat, reader: PictureReader
) -> DataError:
    """The error for too long traces: how many there are, from the first one to the end of its epoch."""
    left = len(traces) - number % len(traces)
    looked = min(left, COUNTED)
    long = []
    for place in range(number, number + looked):
        trace = traces.shuffled(place, seed=recipe.seed)
        length = len(replay(trace, chat, reader).token_ids)
        if length > recipe.max_tokens:
            long.append((length, trace.sample_id))
    most, longest = max(long)
    least = "" if looked == left else " at least"
    of = f"{len(traces)} traces" if looked == left else f"{looked} traces looked at"
    return DataError(
        f"{len(long)} of {of} {'is' if len(long) == 1 else 'are'} longer than max_tokens "
        f"({recipe.max_tokens}), the longest with {most} tokens",
        where=f"trace of {longest!r}",
        fix=f"raise max_tokens to {most}{least} (a run that has begun continues with --resume), or "
        "start a new run, with a lower images.max_pixels or without the traces that are too long",
    )

"""Supervised training on traces: the cold start of CodeV §4.3, stage 1."""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import Field, model_validator

from vtune.config import Strict
from vtune.errors import DataError, RecipeError, RunFailed
from vtune.metrics.log import MetricsLog
from vtune.metrics.trackers import Tracker, check_tracker
from vtune.models.pictures import PixelBudget
from vtune.models.policy import Policy, load_chat, load_policy, resolved, save_policy
from vtune.report.progress import Steps, say
from vtune.rollout.transcript import check_trace, replay
from vtune.runs.folder import running
from vtune.runs.stopping import Stopping
from vtune.schema.parquet import read_trajectories
from vtune.schema.store import trajectory_store
from vtune.schema.trajectory import Trajectory
from vtune.update.batch import Item
from vtune.update.checkpoint import checkpoint_step, newest_checkpoint, write_checkpoint
from vtune.update.deepspeed import Trainer, start
from vtune.update.lora import check_targets
from vtune.update.ranks import Ranks
from vtune.update.recipe import Checkpoints, Update
from vtune.update.schedule import warm_up_problem


class SFTRecipe(Strict):
    """Everything that `vtune sft` needs; nothing is guessed."""

    model: str
    """Folder or hub name."""
    data: tuple[str, ...] = Field(min_length=1)
    """Parquet files of trajectories."""
    seed: int
    epochs: float | None = Field(default=None, gt=0)
    """How often each trace is learnt from; or give `steps`."""
    steps: int | None = Field(default=None, gt=0)
    """Updates; or give `epochs`."""
    batch_size: int = Field(gt=0)
    """Traces in one update, over all processes."""
    max_tokens: int = Field(gt=0)
    """A longer trace is an error, not a cut."""
    images: PixelBudget
    update: Update
    checkpoints: Checkpoints

    @model_validator(mode="after")
    def _has_one_length(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give epochs or steps, and leave the other out (--set epochs=null)")
        return self


def check_sft(recipe: SFTRecipe) -> dict[str, Any]:
    """Everything that can be known before weights are loaded.

    Raises:
        VtuneError: With the first problem found.
    """
    load_chat(recipe.model)
    check_targets(recipe.model, recipe.update)
    return check_traces(recipe)


def check_traces(recipe: SFTRecipe) -> dict[str, Any]:
    """See that every trace can be replayed; returns the sizes of the run.

    Raises:
        VtuneError: With the first problem found.
    """
    paths = [Path(name) for name in recipe.data]
    for path in paths:
        for number, trace in enumerate(read_trajectories(path)):
            check_trace(trace, where=f"{path}, row {number}")
    traces = trajectory_store(paths)
    steps = recipe.steps or int(len(traces) * (recipe.epochs or 0)) // recipe.batch_size
    if steps == 0:
        raise RecipeError(
            f"{len(traces)} traces x {recipe.epochs} epochs do not fill one batch of {recipe.batch_size}",
            fix="lower batch_size or give more data",
        )
    problem = warm_up_problem(recipe.update, updates=steps)
    if problem and Ranks.of_this_process().first:
        say(f"warning: {problem}")
    return {"traces": len(traces), "steps": steps}


def run_sft(recipe: SFTRecipe, out: Path, *, resume: bool, track: str | None = None) -> dict[str, Any]:
    """Train on the traces; weights, metrics and checkpoints go to `out`.

    Args:
        recipe: What to do.
        out: The run folder.
        resume: Continue the run in it.
        track: Name of a tracker that is told what `metrics.jsonl` is told.

    Returns:
        `model` (folder of the trained weights), `steps`, `traces`, `loss` of the last update (None where
        nothing was left to do), `seconds`.
    """
    check_tracker(track)
    recipe = recipe.model_copy(update={"model": resolved(recipe.model)})
    plan = check_sft(recipe)
    ranks = Ranks.of_this_process()
    with running(out, recipe, [Path(name) for name in recipe.data], resume=resume, ranks=ranks):
        return {
            "traces": plan["traces"],
            **_train(recipe, out, ranks, plan["steps"], resume=resume, track=track),
        }


def _train(
    recipe: SFTRecipe, out: Path, ranks: Ranks, steps: int, *, resume: bool, track: str | None
) -> dict[str, Any]:
    torch.set_num_threads(recipe.update.threads)
    start(ranks)
    ranks.wait()
    policy = load_policy(recipe.model, budget=recipe.images, dtype=recipe.update.dtype, device=ranks.device)
    trainer = Trainer(policy, recipe.update, ranks, steps=steps, objective=None, reference=recipe.model)
    checkpoints = out / "checkpoints"
    found = newest_checkpoint(checkpoints) if resume else None
    done = checkpoint_step(found) if found else 0
    if found:
        trainer.load(found / "deepspeed")
    log = MetricsLog(out / "metrics.jsonl", first_step=done) if ranks.first else None
    if ranks.first:
        say(f"trainable parameters: {trainer.trainable}")
    stream = _Stream(recipe, policy, ranks)
    began = time.monotonic()
    loss: float | None = None
    settings = recipe.model_dump(mode="json")
    tracker = Tracker(track if ranks.first else None, out, settings, first_step=done, warn=say)
    stopping = Stopping(recipe.checkpoints, steps, ranks, done=done)
    with stopping, tracker, Steps("sft", steps, done=done, show=ranks.first) as progress:
        for step in range(done, steps):
            started = time.monotonic()
            stats = trainer.step(stream.batch(step))
            if stats is None:
                raise RunFailed(
                    f"the traces of update {step} have no assistant token", fix="look at the data"
                )
            row = {"skipped": 1.0, "learning_rate": stats.learning_rate}
            if not stats.skipped:
                loss = stats.loss
                row = {
                    "loss": stats.loss,
                    "grad_norm": stats.grad_norm,
                    "skipped": 0.0,
                    "learning_rate": stats.learning_rate,
                    "entropy": stats.entropy,
                }
                row |= {f"grad_norm_{group}": norm for group, norm in stats.grad_norms.items()}
            seconds = time.monotonic() - started
            row |= {"seconds": seconds, "tokens_per_second": stats.tokens / seconds}
            if log:
                log.write(step, {"all": row})
            tracker.numbers(step, {"all": row})
            progress.advance({"loss": row.get("loss"), "grad": row.get("grad_norm")})
            keep = recipe.checkpoints.keep
            stopping.after(
                step + 1,
                partial(save, trainer, policy, recipe.model, checkpoints, step + 1, ranks, keep=keep),
            )
    trainer.check_frozen()
    final = newest_checkpoint(checkpoints)
    return {
        "model": str(final),
        "steps": steps,
        "loss": loss,
        "seconds": time.monotonic() - began,
    }


def save(
    trainer: Trainer,
    policy: Policy,
    source: str,
    root: Path,
    step: int,
    ranks: Ranks,
    *,
    keep: int,
    state: Mapping[str, Any] | None = None,
) -> Path:
    """A checkpoint: plain Hugging Face weights with the DeepSpeed state beside them, and with it `state`."""

    def fill(folder: Path) -> None:
        with trainer.whole(torch.device("cpu"), keep=ranks.first) as whole:
            if ranks.first:
                save_policy(whole.model, source, folder)
        trainer.save(folder / "deepspeed", {"step": step, **(state or {})})

    return write_checkpoint(root, step, fill, first=ranks.first, wait=ranks.wait, keep=keep)


class _Stream:
    """The traces of each update, shuffled anew every epoch; a function of the step alone."""

    def __init__(self, recipe: SFTRecipe, policy: Policy, ranks: Ranks) -> None:
        self._recipe = recipe
        self._policy = policy
        self._ranks = ranks
        self._traces = trajectory_store([Path(name) for name in recipe.data])

    def batch(self, step: int) -> list[Item]:
        """This process's share of the traces of an update."""
        size = self._recipe.batch_size
        numbers = range(step * size + self._ranks.rank, (step + 1) * size, self._ranks.world)
        return [self._item(self._traces.shuffled(number, seed=self._recipe.seed)) for number in numbers]

    def _item(self, trace: Trajectory) -> Item:
        book = replay(trace, self._policy.chat, self._policy.pictures)
        if len(book.token_ids) > self._recipe.max_tokens:
            raise DataError(
                f"a trace has {len(book.token_ids)} tokens, more than max_tokens {self._recipe.max_tokens}",
                where=f"trace of {trace.sample_id!r}",
                fix="raise max_tokens, lower images.max_pixels, or drop the trace",
            )
        images = tuple(picture.data for picture in book.images if picture.data is not None)
        return Item(tuple(book.token_ids), images, tuple(book.loss_mask))

"""Which checkpoints of a run are kept, and which one is the best."""

import socket
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from types import TracebackType
from typing import Any, Self

from vtune.errors import DataError, RunFailed
from vtune.files.terminal import brief
from vtune.metrics.evaluated import curve_of
from vtune.metrics.log import read_metrics
from vtune.models.policy import Policy
from vtune.report.progress import say
from vtune.runs.train.record import METRICS
from vtune.update.checkpoint import (
    BEST,
    NEWEST,
    READER,
    PendingCheckpoint,
    complete,
    newest_checkpoint,
    point,
)
from vtune.update.deepspeed import Trainer
from vtune.update.diverged import diverged
from vtune.update.held_files import HeldFile
from vtune.update.manifest import checkpoint_step, damage
from vtune.update.ranks import Ranks
from vtune.update.recipe import Checkpoints
from vtune.update.shards import write_adapters_alone, write_weights
from vtune.update.zero import writer_of


class CheckpointManager:
    """The checkpoints of one run: writes them, and removes those that are not to be kept.

    A context manager around the steps: on entry it corrects the links `best` and `newest`, which a kill may
    have left wrong, and on exit it finishes the checkpoint that is still being written.

    Args:
        recipe: Which checkpoints are kept, and whether training continues while one is written.
        out: The run folder.
        ranks: This process and the others.
    """

    def __init__(self, recipe: Checkpoints, out: Path, ranks: Ranks) -> None:
        self._recipe = recipe
        self._keep = recipe.keep
        self._out = out
        self._ranks = ranks
        self._pending: PendingCheckpoint | None = None
        self.root = out / "checkpoints"

    def __enter__(self) -> Self:
        if self._ranks.first:
            newest = newest_checkpoint(self.root)
            if newest is not None:
                point(self.root, NEWEST, newest)
            self.point()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error, the other processes may never arrive to finish it.
        if kind is None or self._ranks.world == 1:
            self.finish()

    def save(
        self,
        trainer: Trainer,
        policy: Policy,
        source: str,
        step: int,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Save a checkpoint: plain Hugging Face weights, and beside them the DeepSpeed state with `state`.

        Adapters are merged into the weights, and also written separately. All processes take part; `source`
        is the model that tokenizer and processor are copied from. If saved in the background, it exists only
        after `finish`.

        Raises:
            RunFailed: If the weights have diverged, and nothing is written; or if writing fails.
        """
        self.finish()
        self._check_usable(policy, step)
        background, ranks = self._recipe.background, self._ranks
        held: list[HeldFile] = []

        def fill(folder: Path) -> None:
            write_weights(folder, trainer, policy, source, ranks)
            write_adapters_alone(folder, trainer, policy, source, ranks)
            state_too = {"step": step, **(state or {})}
            trainer.save(folder / "deepspeed", state_too, held=held if background else None)

        def rest() -> None:
            for file in held:
                file.write_out()

        self._pending = PendingCheckpoint(
            self.root,
            step,
            fill,
            ranks=ranks,
            mine=lambda path: writer_of(path) == ranks.rank,
            rest=rest,
            background=background,
        )
        if not background:
            self.finish()

    def _check_usable(self, policy: Policy, step: int) -> None:
        """Check that no process has weights that would replace a good checkpoint by a useless one."""
        found = [one for one in self._ranks.gather(diverged(policy.model)) if one is not None]
        if not found:
            return
        first = min(found)
        before = newest_checkpoint(self.root)
        fix = "nothing is saved yet: start a new run with a lower update.learning_rate"
        if before is not None:
            fix = (
                f"--resume continues from {before.name}; if it ends here again, start a new run from that "
                f"one (--set model={before}) with a lower update.learning_rate"
            )
        raise RunFailed(
            f"the weights have diverged after step {step}: the norm of {first.name} is {first.norm:.3g}; no "
            "checkpoint is written",
            where=str(self.root),
            fix=fix,
        )

    def finish_written(self) -> None:
        """Finish a checkpoint if nothing of it is left to write; all processes call it together."""
        if self._pending is not None and all(self._ranks.gather(self._pending.written)):
            self.finish()

    def finish(self) -> None:
        """Wait for the checkpoint that is being written, if any; all processes call it together.

        Raises:
            RunFailed: If it could not be written.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.finish(keep=self._keep.newest, spared=self._spared)

    def best(self) -> Path | None:
        """The best existing checkpoint, the earliest if several are equal; None if none was evaluated."""
        wanted = self._keep.best
        if wanted is None or not (self._out / METRICS).is_file():
            return None
        curve = curve_of(read_metrics(self._out / METRICS), wanted.suite, wanted.metric)
        steps = [(checkpoint_step(folder), folder) for folder in complete(self.root)]
        known = [(curve[step], folder) for step, folder in steps if step in curve]
        pick = max if wanted.mode == "max" else min
        return pick(known, key=lambda one: one[0])[1] if known else None

    def point(self) -> None:
        """Point the link `best` to the best checkpoint; remove it if none is known."""
        found = self.best()
        if found is not None:
            point(self.root, BEST, found)
        else:
            (self.root / BEST).unlink(missing_ok=True)

    def doubt(self, suite: str, row: Mapping[str, float]) -> str | None:
        """A warning if `row`, an evaluation on a suite, lacks the metric that decides; else None."""
        wanted = self._keep.best
        if wanted is None or wanted.suite != suite or wanted.metric in row:
            return None
        return (
            f"warning: checkpoints.keep.best goes by `{wanted.metric}`, which this evaluation on {suite} did "
            f"not measure; it has {', '.join(row)}"
        )

    def _spared(self, folder: Path) -> bool:
        every = self._keep.every
        step = int(folder.name.removeprefix("step-"))
        return (every is not None and step % every == 0) or folder == self.best()


def position(
    checkpoints: Path, trainer: Trainer, ranks: Ranks, *, resume: bool
) -> tuple[int, dict[str, Any] | None]:
    """Where a run resumes: its step, and the state saved with it; the trainer loads its own state.

    All processes call it together.

    Args:
        checkpoints: The run's folder of checkpoints.
        trainer: Has the starting weights.
        ranks: This process and the others.
        resume: False: the run begins.

    Raises:
        DataError: If a file of the newest checkpoint is damaged.
        RunFailed: If machines see different newest checkpoints.
    """
    if not resume:
        return 0, None
    found = newest_checkpoint(checkpoints)
    _check_shared(checkpoints, found, ranks)
    if found is None:
        if ranks.first:
            say("there is no checkpoint yet: the run starts again from the first step")
        return 0, None
    _check_intact(found, ranks)
    try:
        return checkpoint_step(found), trainer.load(found / "deepspeed")
    except (RuntimeError, EOFError, UnpicklingError, FileNotFoundError) as error:
        # torch has no error class for a truncated file.
        if isinstance(error, RuntimeError) and not any(word in str(error) for word in READER):
            raise
        raise _damaged(found, brief(str(error), most=200)) from None


def _check_shared(checkpoints: Path, found: Path | None, ranks: Ranks) -> None:
    """Check that all processes resume from the same checkpoint: each reads its own part of the state."""
    names = ranks.gather((socket.gethostname(), "none" if found is None else found.name))
    if len({name for _, name in names}) > 1:
        told = ", ".join(f"{name} on {host}" for host, name in dict.fromkeys(names))
        raise RunFailed(
            f"the newest checkpoint in {checkpoints} is {told}",
            fix="keep the run in a folder that all machines share; if they do, one may show it late: "
            "--resume again in a minute",
        )


def _check_intact(found: Path, ranks: Ranks) -> None:
    """Check that a checkpoint's files are as they were written; each process reads those that it wrote."""

    def mine(path: Path) -> bool:
        return writer_of(path) % ranks.world == ranks.rank

    wrong = [one for one in ranks.gather(damage(found, mine)) if one is not None]
    if wrong:
        raise _damaged(found, wrong[0])


def _damaged(checkpoint: Path, why: str) -> DataError:
    return DataError(
        f"the checkpoint is damaged: {why}",
        where=str(checkpoint),
        fix="restore it, or remove the folder to resume from an older one",
    )

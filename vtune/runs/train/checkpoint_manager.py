"""Which checkpoints of a run stay, and which one is the best."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vtune.metrics.evaluated import curve_of
from vtune.metrics.log import read_metrics
from vtune.models.policy import Policy
from vtune.runs.train.record import METRICS
from vtune.update.checkpoint import (
    BEST,
    checkpoint_step,
    complete,
    newest_checkpoint,
    point,
    write_checkpoint,
)
from vtune.update.deepspeed import Trainer
from vtune.update.ranks import Ranks
from vtune.update.recipe import Keep
from vtune.update.shards import write_weights
from vtune.update.zero import writer_of


class CheckpointManager:
    """The checkpoints of one run: writes them, and removes those that are not to stay.

    Args:
        recipe: Which ones stay.
        out: The run folder.
    """

    def __init__(self, recipe: Keep, out: Path) -> None:
        self._recipe = recipe
        self._out = out
        self.root = out / "checkpoints"

    def save(
        self,
        trainer: Trainer,
        policy: Policy,
        source: str,
        step: int,
        ranks: Ranks,
        state: Mapping[str, Any] | None = None,
    ) -> Path:
        """A checkpoint: plain Hugging Face weights with the DeepSpeed state beside them, and with it `state`.

        All processes take part; `source` is the model that tokenizer and processor come from.
        """

        def fill(folder: Path) -> None:
            write_weights(folder, trainer, policy, source, ranks)
            trainer.save(folder / "deepspeed", {"step": step, **(state or {})})

        return write_checkpoint(
            self.root,
            step,
            fill,
            first=ranks.first,
            wait=ranks.wait,
            keep=self._recipe.newest,
            spared=self._spared,
            mine=lambda path: writer_of(path) == ranks.rank,
        )

    def best(self) -> Path | None:
        """The best checkpoint that is there, the earliest of equals; None where none was evaluated."""
        wanted = self._recipe.best
        if wanted is None or not (self._out / METRICS).is_file():
            return None
        curve = curve_of(read_metrics(self._out / METRICS), wanted.suite, wanted.metric)
        steps = [(checkpoint_step(folder), folder) for folder in complete(self.root)]
        known = [(curve[step], folder) for step, folder in steps if step in curve]
        pick = max if wanted.mode == "max" else min
        return pick(known, key=lambda one: one[0])[1] if known else None

    def point(self) -> None:
        """Let the link `best` point to the best checkpoint; where none is known there is no link."""
        found = self.best()
        if found is not None:
            point(self.root, BEST, found)
        else:
            (self.root / BEST).unlink(missing_ok=True)

    def doubt(self, suite: str, row: Mapping[str, float]) -> str | None:
        """A warning where `row`, an evaluation on a suite, lacks the number that decides; else None."""
        wanted = self._recipe.best
        if wanted is None or wanted.suite != suite or wanted.metric in row:
            return None
        return (
            f"warning: checkpoints.keep.best goes by `{wanted.metric}`, which this evaluation on {suite} did "
            f"not measure; it has {', '.join(row)}"
        )

    def _spared(self, folder: Path) -> bool:
        every = self._recipe.every
        step = int(folder.name.removeprefix("step-"))
        return (every is not None and step % every == 0) or folder == self.best()


def position(checkpoints: Path, trainer: Trainer, *, resume: bool) -> tuple[int, dict[str, Any] | None]:
    """Where a run resumes: steps done, and the state that was saved with them; the trainer takes up its own.

    Args:
        checkpoints: Of the run.
        trainer: With the starting weights.
        resume: Else it begins.
    """
    found = newest_checkpoint(checkpoints) if resume else None
    return (checkpoint_step(found), trainer.load(found / "deepspeed")) if found else (0, None)

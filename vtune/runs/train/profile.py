"""A torch profile of one step: where its time goes on the CPU and on the GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from vtune.errors import RecipeError
from vtune.report.progress import say
from vtune.update.ranks import Ranks

FOLDER = "profile"
ROWS = 40
"""Operators in the table, those with the longest time of their own first (ours)."""

phase = record_function
"""A context that names a part of a step in its profile; costs almost nothing when not profiling."""


def check_profile(step: int | None, *, done: int, steps: int) -> None:
    """Check that a run will reach the step to be recorded.

    Args:
        step: Counted from 1; None: no step is recorded.
        done: Number of steps already done.
        steps: Number of steps in the whole run.

    Raises:
        RecipeError: If it will not.
    """
    if step is not None and not done < step <= steps:
        left = f"steps {done + 1} to {steps} are left" if done < steps else f"all {steps} steps are done"
        raise RecipeError(f"--profile {step}: {left}", fix="leave it out, or name a step that is left")


class Profile:
    """Records one step of a run, in each process.

    A step is written to `profile/step-NNNNNN-rank-R.json.gz`, a Chrome trace of all threads for Perfetto or
    `chrome://tracing`, and a summary of its operators to a `.txt` file beside it.

    Args:
        step: Counted from 1; None records nothing.
        out: The run folder.
        ranks: This process and the others.

    """

    def __init__(self, step: int | None, out: Path, ranks: Ranks) -> None:
        self._step = step
        self._out = out
        self._ranks = ranks

    @classmethod
    def of_run(cls, step: int | None, out: Path, ranks: Ranks, *, done: int, steps: int) -> Self:
        """The profile of a run in which `done` steps are done; raises as `check_profile` does."""
        check_profile(step, done=done, steps=steps)
        return cls(step, out, ranks)

    @contextmanager
    def of(self, number: int) -> Iterator[None]:
        """A context around the step that follows `number` others; a failing step leaves no profile."""
        if self._step != number + 1:
            yield
            return
        with profile(
            activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * torch.cuda.is_available()],
            # Updates may run in another thread.
            experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True),
        ) as recorded:
            yield
        self._write(recorded)

    def _write(self, recorded: profile) -> None:
        folder = self._out / FOLDER
        folder.mkdir(exist_ok=True)
        name = f"step-{self._step:06d}-rank-{self._ranks.rank}"
        part = folder / f".{name}.part.json.gz"
        recorded.export_chrome_trace(str(part))
        sort = f"self_{'device' if torch.cuda.is_available() else 'cpu'}_time_total"
        table = folder / f".{name}.part.txt"
        table.write_text(recorded.key_averages().table(sort_by=sort, row_limit=ROWS), encoding="utf-8")
        table.replace(folder / f"{name}.txt")
        trace = part.replace(folder / f"{name}.json.gz")
        if self._ranks.first:
            say(f"profile of step {self._step}: {trace}, and its operators: {name}.txt")

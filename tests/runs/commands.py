"""The `vtune` command in this or a separate process, and settings for runs that take seconds."""

import io
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from math import nan
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from unittest.mock import patch

import torch
from safetensors.torch import load_file, save_file

from tests.conftest import HANGS
from vtune.cli.main import main
from vtune.metrics.log import read_metrics

LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def vtune(*words: str | Path) -> Ended:
    """Run a command like the console script, without the seconds for imports."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", ["vtune", *map(str, words)]):
        try:
            main()
        except SystemExit as status:
            code = status.code
    assert isinstance(code, int)
    return Ended(code, out.getvalue(), err.getvalue())


def in_fork(said: Path, work: Callable[[], Ended]) -> ForkProcess:
    """Run a command in a fork of this process, which can be killed and needs no time for imports.

    Args:
        said: Receives the command's standard error once it has ended.
        work: Calls `vtune`.
    """

    def run() -> None:
        # The fork server is not a child of the forked process, which could not wait for it.
        forkserver._forkserver._forkserver_pid = None  # type: ignore[attr-defined]
        try:
            ended = work()
            said.write_text(ended.err)
        except BaseException:
            said.write_text(traceback.format_exc())
            raise
        sys.exit(ended.code)

    said.touch()
    process = get_context("fork").Process(target=run)
    process.start()
    return process


def environment(**more: str) -> dict[str, str]:
    """This process's environment without variables of a training group; one thread per process."""
    kept = {name: value for name, value in os.environ.items() if name not in LAUNCHER}
    return kept | {"OMP_NUM_THREADS": "1"} | more


def python(code: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python code in a separate process."""
    command = [sys.executable, "-c", code, *map(str, words)]
    # Without torch's compiler, which DeepSpeed's optimizers import.
    settings = environment(TORCHDYNAMO_DISABLE="1")
    return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=HANGS, check=False)


def setting(**values: object) -> list[str]:
    """`--set` arguments; `__` stands for a dot."""
    return [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


def rl(model: Path, data: Path, out: Path, *more: str) -> list[str]:
    """Arguments of `vtune rl` with four steps of two groups of four rollouts."""
    settings = setting(
        model=model,
        data=f"[{data}]",
        seed=0,
        steps=4,
        prompts_per_step=2,
        group_size=4,
        update__threads=1,
        update__micro_tokens=512,
        update__warmup_steps=0,
        checkpoints__every=2,
        checkpoints__keep=4,
        trajectories_every=1,
    )
    return ["rl", "--recipe", "codev-tiny", "--out", str(out), *settings, *more]


def sft(model: Path, data: Path, out: Path, *more: str) -> list[str]:
    """Arguments of `vtune sft` with 48 updates on 32 traces."""
    settings = setting(
        model=model,
        data=f"[{data}]",
        seed=0,
        epochs=24.0,
        batch_size=16,
        update__threads=1,
        update__warmup_steps=4,
        update__learning_rate=0.0015,
        checkpoints__every=24,
        checkpoints__keep=2,
    )
    return ["sft", "--recipe", "codev-tiny", "--out", str(out), *settings, *more]


def evaluation(model: Path, data: Path, out: Path, *more: str) -> list[str]:
    """Arguments of a short `vtune eval`."""
    settings = setting(data=f"[{data}]", seed=0, rollouts=1, threads=1)
    return ["eval", "--suite", "lens", "--model", str(model), "--out", str(out), *settings, *more]


def same_weights(first: Path, second: Path) -> bool:
    """Whether two checkpoints hold exactly the same weights."""
    a, b = (load_file(folder / "model.safetensors") for folder in (first, second))
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def with_nan(model: Path, out: Path) -> Path:
    """A copy of a model with a NaN in a norm of the language model."""
    shutil.copytree(model, out)
    weights = load_file(out / "model.safetensors")
    name = next(name for name in weights if name.endswith("norm.weight") and "visual" not in name)
    weights[name].fill_(nan)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    return out


def numbers(run: Path) -> dict[tuple[int, str], dict[str, float]]:
    """The content of `metrics.jsonl` by step and source, without timings and machine state."""
    lines = read_metrics(run / "metrics.jsonl")
    found = {
        (line.step, line.source): {name: value for name, value in line.values.items() if not _clocked(name)}
        for line in lines
    }
    assert len(found) == len(lines), "a step is told twice"
    return found


def _clocked(name: str) -> bool:
    return "second" in name or name in ("idle_share", "mfu", "memory_gib")

"""Runs of `vtune` in a check, in the same process or launched, and the GPU memory that they take."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import torch

from vtune.metrics.log import read_metrics


def vtune_here(words: Sequence[str]) -> None:
    """Run a command in this process, so that its memory can be queried.

    Raises:
        RuntimeError: If it fails.
    """
    from vtune.cli.main import main

    with patch.object(sys, "argv", ["vtune", *words]):
        try:
            main()
        except SystemExit as status:
            if status.code:
                raise RuntimeError(f"vtune {words[0]} ended with status {status.code}") from None


MEETING = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE")
"""Rendezvous variables of a run's processes, which a training leaves in its environment."""


def environment_apart() -> dict[str, str]:
    """This process's environment without them, for a process that joins no group."""
    return {name: value for name, value in os.environ.items() if name not in MEETING}


def vtune_apart(words: Sequence[str], **environment: str) -> None:
    """Run a command in a separate process.

    Raises:
        subprocess.CalledProcessError: If it fails.
    """
    command = [sys.executable, "-m", "vtune.cli.main", *words]
    subprocess.run(command, env={**environment_apart(), **environment}, stdin=subprocess.DEVNULL, check=True)


def settings(values: Mapping[str, Any]) -> list[str]:
    """The `--set` arguments for keys of a recipe."""
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def rows_of(run: Path) -> list[Mapping[str, float]]:
    """The metric rows of a run for all sources together, in order."""
    found = [line for line in read_metrics(run / "metrics.jsonl") if line.source == "all"]
    return [line.values for line in sorted(found, key=lambda line: line.step)]


class Memory:
    """Peak memory of each GPU over all processes, in GB, while the context is active."""

    def __init__(self) -> None:
        self.most = [0.0] * torch.cuda.device_count()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            for number in range(len(self.most)):
                free, total = torch.cuda.mem_get_info(number)
                self.most[number] = max(self.most[number], (total - free) / 1e9)
            if self._over.wait(0.05):
                return

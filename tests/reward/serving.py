"""Reward services in processes of their own, as users start them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.conftest import HANGS

ARGUMENTS = ("--port", "0", "--json")


@dataclass
class Served:
    process: subprocess.Popen[str]
    facts: dict[str, Any]

    @property
    def url(self) -> str:
        return str(self.facts["url"])

    def workers(self) -> list[int]:
        """Ids of its living children that verify."""
        return [pid for pid in children(self.process.pid) if "spawn_main" in command(pid)]


@contextmanager
def serving(*options: str) -> Iterator[Served]:
    command = [sys.executable, "-m", "vtune.cli.main", "serve", "rewards", *ARGUMENTS, *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        text = ""
        for line in process.stdout:
            text += line
            if line == "}\n":
                break
        assert text, process.stderr.read()
        yield Served(process, json.loads(text))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        process.communicate(timeout=HANGS)


def children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return []


def command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be buried does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False

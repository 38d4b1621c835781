"""A `vtune` command in a separate process, with all its processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from tests.conftest import ROOT
from tests.runs.commands import environment

BREAKS = """
import atexit, os, pathlib, signal, sys

if "RANK" in os.environ:
    here = pathlib.Path(__file__).parent / f"in-order-{os.environ['RANK']}"
    atexit.register(here.touch)

class NotWell(BaseException):
    pass

def break_down(number, frame):
    raise NotWell("rank one is not well")

if os.environ.get("RANK") == "1":
    signal.signal(signal.SIGUSR1, break_down)
"""
"""As `sitecustomize`: a planted error in the second rank, and a file for each rank that ended properly."""


IDLES = (
    BREAKS
    + """
import json, sys, time, types

# A rank, or the command.
if "vtune.cli.main" in sys.orig_argv and "torch.distributed.run" not in sys.orig_argv:
    from pydantic import ConfigDict

    from vtune.sections import Strict

    class SFTRecipe(Strict):
        model_config = ConfigDict(extra="allow")

    def run_sft(recipe, out, *, resume, track, profile):
        told, first = [], os.environ["RANK"] == "0"
        if recipe.steps < 0:
            from vtune.errors import RecipeError

            raise RecipeError("steps below zero")
        signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
        state, log = out / "state.json", out / "metrics.jsonl"
        done = json.loads(state.read_text()) if state.exists() else 0
        if first:
            out.mkdir(exist_ok=True)
            (out / "recipe.yaml").touch()
            part = out / "metrics.part"
            part.write_text('"source": "all"\\n' * done)
            part.replace(log)
        while done < recipe.steps and not told:
            time.sleep(0.1)
            done += 1
            if first:
                with log.open("a") as lines:
                    lines.write('"source": "all"\\n')
        if first:
            state.write_text(json.dumps(done))
        if told:
            raise SystemExit(130)
        return {"steps": done}

    given = {
        "vtune.runs.train.sft_recipe": {"SFTRecipe": SFTRecipe},
        "vtune.runs.train.sft": {"run_sft": run_sft},
        # Where there is a driver the command counts GPUs.
        "torch": {"cuda": types.SimpleNamespace(device_count=lambda: 0)},
    }
    for name, values in given.items():
        sys.modules[name] = types.SimpleNamespace(**values)
"""
)
"""The same, with a training that trains nothing, without torch: a tenth of a second per step, saved when it
is told to stop. Everything that launches it is real."""


class Launched:
    """A running command; its output is in files in the folder `said`."""

    every: ClassVar[list["Launched"]] = []
    """All commands that are still running."""

    def __init__(self, words: Sequence[str | Path], said: Path, *, site: str = BREAKS) -> None:
        said.mkdir(parents=True, exist_ok=True)
        (said / "sitecustomize.py").write_text(site)
        self.said = said
        self.tag = f"{said}-{time.monotonic_ns()}"
        with (said / "out").open("wb") as out, (said / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "vtune.cli.main", *map(str, words)],
                # Without torch's compiler, which DeepSpeed's optimizers import: a second per process.
                env=environment(
                    PYTHONPATH=f"{said}:{ROOT}", VTUNE_TEST_TAG=self.tag, TORCHDYNAMO_DISABLE="1"
                ),
                cwd=said,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.every.append(self)

    @property
    def err(self) -> str:
        return (self.said / "err").read_text()

    def processes(self) -> dict[int, str]:
        """The command lines of all processes that it has started, by process id, except the sandbox's."""
        return {pid: text for pid, text in self._all().items() if "guest" not in text}

    def kinds(self) -> dict[int, str]:
        """The kind of each of its processes, by process id, including the sandbox's."""
        return {pid: kind for pid, text in self._all().items() if (kind := self._kind(pid, text))}

    def _kind(self, pid: int, text: str) -> str:
        if pid == self.process.pid:
            return "command"
        for mark, kind in (
            ("vtune.runs.processes.local_ranks", "launcher"),
            ("vtune.runs.processes.watcher", "watcher"),
            ("vtune.cli.main", "rank"),
            ("import guest", "sandbox"),
        ):
            if mark in text:
                return kind
        return ""

    def expect(self, code: int, seconds: float) -> None:
        """Wait until it ends, with this exit status."""
        found = self.wait(seconds)
        assert found == code, f"exit {found}\n{self.err}"

    def ranks(self) -> dict[int, int]:
        """Process ids of the training processes, by rank."""
        found = {}
        for pid, text in self.processes().items():
            if "-m vtune.cli.main" in text and pid != self.process.pid:
                with suppress(OSError):
                    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                    # A process that is about to become a rank or a watcher still looks like the command.
                    found |= {int(v[5:]): pid for v in variables if v.startswith(b"RANK=")}
        return found

    def wait(self, seconds: float) -> int:
        """Its exit status."""
        return self.process.wait(seconds)

    def end(self) -> None:
        """Kill whatever is left of it."""
        for pid in (self.process.pid, *self._all()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def gone(self, seconds: float) -> bool:
        """Whether all its processes end within this time."""
        return eventually(lambda: not self._all(), seconds)

    def _all(self) -> dict[int, str]:
        """All processes with its tag, and their children, as the sandbox's have no tag."""
        tagged, lines, parents = set(), {}, {}
        tag = f"VTUNE_TEST_TAG={self.tag}".encode()
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with suppress(OSError):
                    pid = int(folder.name)
                    text = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                    if text:  # ended processes have none
                        lines[pid] = text
                        if tag in (folder / "environ").read_bytes().split(b"\0"):
                            tagged.add(pid)
        found = set(tagged)
        while more := {pid for pid in lines if parents[pid] in found} - found:
            found |= more
        return {pid: lines[pid] for pid in found}


def eventually(happened: Callable[[], bool], seconds: float) -> bool:
    """Whether it happens within this time."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def steps_done(run: Path) -> int:
    """The number of steps that a run has logged."""
    log = run / "metrics.jsonl"
    return log.read_text().count('"source": "all"') if log.exists() else 0

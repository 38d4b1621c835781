"""`vtune` commands in child processes: whatever becomes of one, the parent continues."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import FrameType

from vtune.errors import WITHIN
from vtune.runs.processes.launch import TAIL, Voice, from_error
from vtune.runs.processes.watcher import die_with_parent
from vtune.signals import HANG_UP, orders_to_stop


class Child:
    """`vtune WORDS` in a child process, which dies with this one. Check whether it has ended with `poll`.

    Args:
        words: The command line.
        log: Its stderr is appended here, and passed on as it arrives.
        result: Receives its stdout, and exists only if it exits with 0; None: its stdout is discarded.
        environment: Variables that it gets in addition to those of this process.
        title: Prefix of each line that is passed on.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        log: Path,
        result: Path | None,
        environment: Mapping[str, str] | None = None,
        title: str = "",
    ) -> None:
        self._result = result
        self._part = result.with_name(f".{result.name}.part") if result else None
        self._voice = Voice(log, title)
        with log.open("ab") as said, self._part.open("wb") if self._part else nullcontext() as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "vtune.cli.main", *words],
                stdin=subprocess.DEVNULL,
                stdout=printed or subprocess.DEVNULL,
                stderr=said,
                env={**os.environ, WITHIN: "1", **(environment or {})},
                # Not in the terminal's process group, or it would get Ctrl-C twice.
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )

    def poll(self) -> int | None:
        """Its exit status, None while it runs; negative: killed by that signal."""
        ended = self._process.poll() is not None
        self._voice.pass_on(ended=ended)
        if ended and self._part and self._result and self._process.returncode == 0:
            self._part.replace(self._result)
            self._part = None
        return self._process.returncode if ended else None

    def send(self, number: int) -> None:
        """Send it a signal, if it is still running."""
        self._process.send_signal(number)


@contextlib.contextmanager
def noted_signals() -> Iterator[list[int]]:
    """Collect Ctrl-C and orders to stop in a list; they end nothing by themselves. Main thread only."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        HANG_UP.note(number)
        noted.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, *orders_to_stop())}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def last_words(log: Path) -> str:
    """The error that a log ends with, or its last lines."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-TAIL:]
    return "\n".join(from_error(lines))

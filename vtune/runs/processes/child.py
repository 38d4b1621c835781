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


class Child:
    """`vtune WORDS`, started; it dies with this process. Ask for its end with `poll`.

    Args:
        words: The command line.
        log: What it says on stderr is added here, and passed on as it comes.
        result: Gets what it writes to stdout, and is there only if it exits 0; None: nobody reads that.
        environment: Variables that it has beside those of this process.
        title: Stands before each line that is passed on.
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
                # Not in the terminal's group: it would get Ctrl-C twice.
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )

    def poll(self) -> int | None:
        """Its exit status, None while it runs; negative: the signal that killed it."""
        ended = self._process.poll() is not None
        self._voice.pass_on(ended=ended)
        if ended and self._part and self._result and self._process.returncode == 0:
            self._part.replace(self._result)
            self._part = None
        return self._process.returncode if ended else None

    def send(self, number: int) -> None:
        """Send it a signal, where it still runs."""
        self._process.send_signal(number)


@contextlib.contextmanager
def noted_signals() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM go into a list, and end nothing by themselves. Main thread only."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def last_words(log: Path) -> str:
    """The error in which a log ends, or its last lines."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-TAIL:]
    return "\n".join(from_error(lines))

"""One `vtune` command in a process of its own: whatever becomes of it, what is around it continues."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import FrameType

from vtune.errors import INTERRUPTED, WITHIN
from vtune.runs.processes.launch import TAIL, Voice, from_error
from vtune.runs.processes.watcher import LOOK, die_with_parent


def run_child(words: Sequence[str], *, log: Path, result: Path | None) -> int:
    """Run `vtune WORDS`, and wait for its end.

    Ctrl-C and SIGTERM are passed on to it, once each time; it dies with this process.

    Args:
        words: The command line.
        log: What it says on stderr is added here, and passed on as it comes.
        result: Gets what it writes to stdout, and is there only if it exits 0; None: nobody reads that.

    Returns:
        Its exit status; negative: the signal that killed it.

    Raises:
        SystemExit: 130, once it has ended, if it was interrupted.
    """
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    part = result.with_name(f".{result.name}.part") if result else None
    try:
        with log.open("ab") as said, part.open("wb") if part else nullcontext() as told:
            voice = Voice(log)
            child = subprocess.Popen(
                [sys.executable, "-m", "vtune.cli.main", *words],
                stdin=subprocess.DEVNULL,
                stdout=told or subprocess.DEVNULL,
                stderr=said,
                env={**os.environ, WITHIN: "1"},
                # Not in the terminal's group: it would get Ctrl-C twice.
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        passed = 0
        while child.poll() is None:
            for number in asked[passed:]:
                child.send_signal(number)
                passed += 1
            voice.pass_on()
            time.sleep(LOOK)
        voice.pass_on()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if part and result and child.returncode == 0:
        part.replace(result)
    if asked or child.returncode == INTERRUPTED:
        raise SystemExit(INTERRUPTED)
    return child.returncode


def last_words(log: Path) -> str:
    """The error in which a log ends, or its last lines."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-TAIL:]
    return "\n".join(from_error(lines))

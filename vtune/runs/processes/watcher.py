"""One rank of a run and the process that watches it: its log, its end, and the orders that it receives.

Watchers and the command that started them communicate through files in the run's folder `logs`, which all
machines see. This file imports nothing large: there is a watcher for every rank.
"""

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from ctypes import CDLL
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from vtune.errors import INTERRUPTED, WITHIN
from vtune.signals import orders_to_stop

LOOK = 0.2
"""Seconds between checks of the folder."""
GRACE = 10.0
"""Seconds that ranks have to end after another one has failed, or after Ctrl-C."""

ORDER = "order"
END, SAVE = "end", "save"
"""Orders: stop at once; write a checkpoint at the end of the step, then stop."""

LEASHED, FREE = "leashed", "free"
"""Whether stdin of a rank's watcher closes when the command ends: not through ssh."""

PR_SET_PDEATHSIG = 1

START = "=== started "
"""Start of the line between two starts in a log."""


class Ended(NamedTuple):
    """How a rank ended."""

    rank: int
    code: int
    """Exit status; negative: killed by that signal."""
    at: float
    """Seconds since 1970."""


def keep(logs: Path, words: Sequence[str], *, leashed: bool) -> int:
    """Run one rank and watch it; runs in a separate process, started by a launcher.

    The rank's output goes to its log, and its end is noted. It is ended if another rank has failed, if that
    is ordered, or if the command that started everything is gone.

    Args:
        logs: The folder that all processes of the run share.
        words: The command line of the rank.
        leashed: Whether stdin closes when the command that started everything ends.
    """
    rank = int(os.environ["RANK"])
    # A scheduler may signal every process: all then save together, as if only the command had been signalled.
    asked: list[int] = []
    orders = orders_to_stop()
    for number in orders:
        signal.signal(number, lambda number, _: asked.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, orders)
    child = _started(rank, logs, words)
    saving, deadline = False, float("inf")
    while child.poll() is None:
        order = order_given(logs)
        if asked and not order:
            give_order(logs, SAVE)
        if order == SAVE and not saving:
            saving = True
            child.send_signal(signal.SIGTERM)
        # If its partners are gone, the rank may be blocked outside Python, where it does not react to SIGINT.
        if deadline == float("inf") and (order == END or failed(logs) or (leashed and alone())):
            child.send_signal(signal.SIGINT)
            deadline = time.monotonic() + GRACE / 2
        if time.monotonic() > deadline:
            _end_session(child.pid)
        time.sleep(LOOK)
    _end_session(child.pid)
    _session_of(logs, rank).unlink(missing_ok=True)
    code = child.returncode
    saving = saving or bool(asked)
    if saving and -code in orders:
        # It was told to end before its first step, when there was nothing to save yet.
        code = INTERRUPTED
    if deadline == float("inf"):
        _note_end(logs, rank, code)
    if saving and code == INTERRUPTED:
        return 0
    return code if code >= 0 else 128 - code


def _note_end(logs: Path, rank: int, code: int) -> None:
    _write(_end_of(logs, rank), json.dumps(Ended(rank, code, time.time())._asdict()))


def note_killed(words: Sequence[str], rank: int, code: int) -> None:
    """Note the end of a rank whose watcher was killed, and could not: the rank is killed with it.

    Args:
        words: Arguments of the watcher.
        rank: Whose watcher it was.
        code: The watcher's exit status.
    """
    logs, _ = _folder_and_words(words)
    if not _end_of(logs, rank).exists():
        _note_end(logs, rank, code)


def _folder_and_words(words: Sequence[str]) -> tuple[Path, Sequence[str]]:
    """The folder `logs` and the rank's command line, from the arguments of its watcher."""
    folder, *command = words[1:] if words[0] == LEASHED else unpacked(words[1])
    return Path(folder), command


def packed(words: Sequence[str]) -> str:
    """Words packed into one that no shell changes: pdsh passes a command to the shell of every machine."""
    return base64.urlsafe_b64encode(json.dumps(list(words)).encode()).decode()


def unpacked(word: str) -> list[str]:
    """The words that were passed to `packed`."""
    found: list[str] = json.loads(base64.urlsafe_b64decode(word))
    return found


def _started(rank: int, logs: Path, words: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Start a rank in a new session; a note in `logs` says which."""
    log = logs / f"rank-{rank}.log"
    with log.open("ab") as said, (logs / "result" if rank == 0 else log).open("ab") as result:
        said.write(start_line())
        said.flush()
        child = subprocess.Popen(
            [sys.executable, "-m", "vtune.cli.main", *words],
            stdin=subprocess.DEVNULL,
            stdout=result,
            stderr=said,
            env={**os.environ, **_forwarded(logs), WITHIN: "1"},
            # Everything that a rank starts, such as an engine, belongs to its session, and ends with it.
            start_new_session=True,
            preexec_fn=partial(_hears_ctrl_c, os.getpid()),
        )
        _write(_session_of(logs, rank), json.dumps([socket.gethostname(), child.pid]))
    return child


def start_line() -> bytes:
    """The line that separates this start from earlier ones in a log."""
    return f"{START}{time.strftime('%Y-%m-%d %H:%M:%S')} on {socket.gethostname()}\n".encode()


def _session_of(logs: Path, rank: int) -> Path:
    """The file that notes machine and leading process of a rank's session, while it runs."""
    return logs / f"rank-{rank}.session"


def _end_of(logs: Path, rank: int) -> Path:
    """The file that notes how a rank ended."""
    return logs / f"rank-{rank}.ended"


def _forwarded(logs: Path) -> dict[str, str]:
    """Variables of the machine that started everything; empty if that is this machine."""
    try:
        found: dict[str, str] = json.loads((logs / "environment.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found


def _end_session(leader: int) -> None:
    """Kill whatever is left of a rank and of the processes it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def end_sessions(logs: Path) -> None:
    """Kill what is left of this machine's ranks whose watchers are gone."""
    for file in logs.glob("rank-*.session"):
        host, leader = json.loads(file.read_text(encoding="utf-8"))
        if host == socket.gethostname():
            _end_session(leader)
            file.unlink()


def give_order(logs: Path, order: str) -> None:
    """Give an order to all watchers."""
    _write(logs / ORDER, order)


def _write(file: Path, text: str) -> None:
    """Write a file atomically, even if others write it at the same time."""
    part = file.with_name(f".{file.name}.{socket.gethostname()}-{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


def order_given(logs: Path) -> str:
    """The current order, empty if there is none."""
    try:
        return (logs / ORDER).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def alone() -> bool:
    """Whether the command at the other end of stdin has ended."""
    os.set_blocking(0, False)
    try:
        return os.read(0, 1) == b""
    except BlockingIOError:
        return False


def _hears_ctrl_c(parent: int) -> None:
    """Let SIGINT end the rank properly; its watcher ignores the signal, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Blocked until the rank handles it: during Python's start it would leave a traceback in the log.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    die_with_parent(parent)


def die_with_parent(parent: int) -> None:
    """Ask for SIGKILL when the parent ends, however it ends.

    Args:
        parent: Its process id: if it has already ended, there is no signal.
    """
    libc: Any = CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def ended(logs: Path) -> list[Ended]:
    """The ranks that have ended, in no particular order."""
    found = []
    for path in logs.glob("rank-*.ended"):
        with contextlib.suppress(FileNotFoundError):
            found.append(Ended(**json.loads(path.read_text(encoding="utf-8"))))
    return found


def failed(logs: Path) -> list[Ended]:
    """The ranks that ended with an error and were not told to end."""
    return [one for one in ended(logs) if one.code not in (0, INTERRUPTED)]


if __name__ == "__main__":
    folder, command = _folder_and_words(sys.argv[1:])
    raise SystemExit(keep(folder, command, leashed=sys.argv[1] == LEASHED))

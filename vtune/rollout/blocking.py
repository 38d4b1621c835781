"""Detects a user's own code that blocks the event loop, which makes every conversation wait."""

import asyncio
import inspect
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.uses import Used, used
from vtune.verifiers import verdict_on

T = TypeVar("T")

TICK = 0.5
"""Seconds between checks of what the event loop is running."""

LOOKS = 10
"""Number of recent checks; user code found in half of them is reported; ours."""

WAIT = 3.0
"""Seconds after Ctrl-C before a message says what keeps the run from ending; ours."""

AWAIT = "await what it waits for, or run it by `await asyncio.to_thread(...)`"
IN_WORKER = "set in_worker=True, so that its verifier runs in its own process"
QUICKER = "it is not awaited: make it faster, or do the slow part once, when the file is loaded"
"""Remedies for a coroutine, a verifier, and any other user function."""


class Blocking:
    """Reports, once, the line of a user's file in which the event loop spends its time.

    A tool or an environment that calls `time.sleep` or `requests.get` holds up all conversations, one after
    the other; one that never returns blocks them for ever. A thread checks for this, since the loop cannot.

    Args:
        warn: Takes a one-line warning; called from a thread.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._named: set[tuple[str, int]] = set()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch this thread's event loop; does nothing if no user files are loaded."""
        files = {file.path: file for file in used()}
        if not files:
            yield
            return
        over = threading.Event()
        args = (threading.get_ident(), files, over)
        threading.Thread(target=self._watch, args=args, name="vtune-blocking", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _watch(self, loop: int, files: dict[str, Used], over: threading.Event) -> None:
        looks: deque[tuple[str, int, str] | None] = deque(maxlen=LOOKS)
        while not over.wait(TICK):
            looks.append(_place(sys._current_frames().get(loop), files))
            theirs = Counter(place for place in looks if place is not None)
            if 2 * theirs.total() < LOOKS:
                continue
            (((path, line, remedy), _),) = theirs.most_common(1)
            if (path, line) not in self._named:
                self._named.add((path, line))
                share = theirs.total() / len(looks)
                self._warn(
                    f"{line_in(files[path], line)} blocked the event loop for {share:.0%} of the last "
                    f"seconds, and every conversation waits for it: {remedy}"
                )


def to_end(work: Coroutine[Any, Any, T], warn: Callable[[str], None]) -> T:
    """Run a coroutine in a new event loop; after Ctrl-C, a warning says what keeps it from ending."""

    async def heard() -> T:
        with _CtrlC(warn):
            return await work

    return asyncio.run(heard())


class _CtrlC:
    """Reports what keeps a run from ending after Ctrl-C, if it is a line in a user's file.

    The first Ctrl-C cancels what the event loop runs, but a function that does not return keeps the loop from
    acting on it. A context manager, entered inside the loop; the previous Ctrl-C handler still runs.

    Args:
        warn: Takes a one-line warning; called from a thread.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._over = threading.Event()
        self._before: Any = None
        self._pressed = False

    def __enter__(self) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and threading.current_thread() is threading.main_thread():
            self._before = handler
            signal.signal(signal.SIGINT, self._press)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _press(self, number: int, frame: FrameType | None) -> None:
        if not self._pressed:
            self._pressed = True
            args = (threading.get_ident(), self._over)
            threading.Thread(target=self._tell, args=args, name="vtune-ctrl-c", daemon=True).start()
        self._before(number, frame)

    def _tell(self, thread: int, over: threading.Event) -> None:
        while not over.wait(WAIT):
            line = line_of_theirs(thread)
            if line is not None:
                self._warn(
                    f"interrupted, and waiting for {line} to return; a second Ctrl-C ends at once, and "
                    "what is not saved yet is lost"
                )
                return


def line_of_theirs(thread: int) -> str | None:
    """Describes the line of a user's file that a thread is executing; None if it is not in one."""
    files = {file.path: file for file in used()}
    frame = _theirs(sys._current_frames().get(thread), files)
    return None if frame is None else line_in(files[frame.f_code.co_filename], frame.f_lineno)


def row_of(call: FrameType) -> str:
    """Describes the sample that a function was given, itself or as part of a row or scene; may be empty."""
    code = call.f_code
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        given = call.f_locals.get(name)
        for one in (given, getattr(given, "record", None), getattr(given, "sample", None)):
            if isinstance(one, Sample | Trajectory):
                return f"sample {(one.id if isinstance(one, Sample) else one.sample_id)!r}"
    return ""


def _place(frame: FrameType | None, files: dict[str, Used]) -> tuple[str, int, str] | None:
    """(path, line, remedy) of the innermost frame from one of the given files."""
    theirs = _theirs(frame, files)
    if theirs is None:
        return None
    return theirs.f_code.co_filename, theirs.f_lineno, _remedy(theirs, files)


def _theirs(frame: FrameType | None, files: dict[str, Used]) -> FrameType | None:
    """The innermost frame from one of the given files."""
    while frame is not None and frame.f_code.co_filename not in files:
        frame = frame.f_back
    return frame


def _remedy(inner: FrameType, files: dict[str, Used]) -> str:
    """The remedy if one of the user's frames takes long; it depends on the callers."""
    frame: FrameType | None = inner
    awaited = False
    while frame is not None:
        if frame.f_code is verdict_on.__code__:
            return IN_WORKER
        theirs = frame.f_code.co_filename in files
        awaited = awaited or (theirs and bool(frame.f_code.co_flags & inspect.CO_COROUTINE))
        frame = frame.f_back
    return AWAIT if awaited else QUICKER


def line_in(file: Used, line: int) -> str:
    """Describes a line of a user's file, numbered from 1."""
    lines = file.source.decode(errors="replace").splitlines()
    shown = lines[line - 1].strip() if line <= len(lines) else ""
    return f"{file.name}:{line} ({shown})"

"""Code of a user's own that keeps the event loop, so that every conversation waits for it."""

import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from vtune.uses import Used, used

TICK = 0.5
"""Seconds between two looks at what the loop runs."""

LOOKS = 10
"""The last looks, half of which name a user's code where they find it; ours."""


class Blocking:
    """Names the line of a user's own file in which the event loop spends its time, once.

    A tool or an environment that calls `time.sleep` or `requests.get` holds up all conversations, one after
    the other; one that never returns holds them up for ever. A thread looks: the loop cannot.

    Args:
        warn: Takes one line; called from a thread.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._named: set[tuple[str, int]] = set()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the loop of this thread; without a file of the user's own there is nobody to name."""
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
        looks: deque[tuple[str, int] | None] = deque(maxlen=LOOKS)
        while not over.wait(TICK):
            looks.append(_place(sys._current_frames().get(loop), files))
            theirs = Counter(place for place in looks if place is not None)
            if 2 * theirs.total() < LOOKS:
                continue
            ((place, _),) = theirs.most_common(1)
            if place not in self._named:
                self._named.add(place)
                self._warn(_words(files[place[0]], place[1], theirs.total() / len(looks)))


def _place(frame: FrameType | None, files: dict[str, Used]) -> tuple[str, int] | None:
    """(path, line) of the innermost frame that runs one of some files."""
    while frame is not None and frame.f_code.co_filename not in files:
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def _words(file: Used, line: int, share: float) -> str:
    lines = file.source.decode(errors="replace").splitlines()
    shown = lines[line - 1].strip() if line <= len(lines) else ""
    return (
        f"{file.name}:{line} ({shown}) keeps the event loop, {share:.0%} of the last seconds, and every "
        "conversation waits for it: await what it waits for, or run it by `await asyncio.to_thread(...)`"
    )

"""Says what a command waits for if a function in a user's own file does not return."""

import sys
import threading
import time
from types import FrameType

from vtune.parts import WORDS
from vtune.uses import Used, used
from vtune.waits import Wait, pending

PATIENCE = 30.0
"""Seconds that one call may take before it is reported, and again each time that they have doubled; ours."""

LOOK = 1.0
"""Seconds between looks at what the main thread runs, and at what it waits for; ours."""


class Waiting:
    """Within the block, names the line and the sample of a call into a user's file that does not return.

    Any kind of part may hang in any command, also before the first rollout: ground truths are checked, and
    files loaded, in the main thread. A thread looks for this, since the main one cannot. What awaits
    something does not occupy the main thread; it is noted in `vtune.waits`.
    """

    def __init__(self) -> None:
        self._over = threading.Event()
        self._due: dict[tuple[str, str], float] = {}
        """When the wait for a part is reported again."""

    def __enter__(self) -> None:
        main = threading.main_thread().ident
        threading.Thread(target=self._watch, args=(main,), name="vtune-waiting", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self, main: int) -> None:
        call: FrameType | None = None
        since, bound = time.monotonic(), PATIENCE
        while not self._over.wait(LOOK):
            self._look_at_waits()
            found = _call(main)
            if found is None or found is not call:
                call, since, bound = found, time.monotonic(), PATIENCE
                continue
            waited = time.monotonic() - since
            if waited >= bound:
                bound *= 2
                _report(main, found, waited)

    def _look_at_waits(self) -> None:
        now = time.monotonic()
        late = [wait for wait in pending() if now - wait.since >= wait.patience]
        for part in dict.fromkeys(wait.part for wait in late):
            first, *others = [wait for wait in late if wait.part == part]
            file = next((file for file in used() if part in file.parts), None)
            if file is not None and now >= self._due.get(part, 0.0):
                self._due[part] = now + (now - first.since)
                _report_wait(first, len(others), file, now - first.since)


def _call(main: int) -> FrameType | None:
    """The frame of the user's function that we have called; None if the main thread is in none."""
    files = {file.path for file in used()}
    if not files:
        return None
    frame, found = sys._current_frames().get(main), None
    while frame is not None:
        if frame.f_code.co_filename in files:
            found = frame
        frame = frame.f_back
    return found


def _report(main: int, call: FrameType, waited: float) -> None:
    # The main thread is in a user's file, so it is not importing these at the same time.
    from vtune.report.progress import say
    from vtune.rollout.blocking import line_of_theirs, row_of

    line, row = line_of_theirs(main), row_of(call)
    file = next(file for file in used() if file.path == call.f_code.co_filename)
    part = " or ".join(f"{WORDS.get(kind, kind)} `{name}`" for kind, name in file.parts) or "a part"
    of = f" ({row})" if row else ""
    say(f"{part} of {file.name} has not returned for {waited:.0f} s{of}: it is at {line}; Ctrl-C ends this")


def _report_wait(wait: Wait, others: int, file: Used, waited: float) -> None:
    from vtune.report.progress import say
    from vtune.rollout.blocking import line_in, row_of

    kind, name = wait.part
    frames = [frame for frame in wait.frames() if frame.f_code.co_filename == file.path]
    row = row_of(frames[0]) if frames else ""
    of = f" ({row})" if row else ""
    at = f": it is at {line_in(file, frames[-1].f_lineno)}" if frames else ""
    more = f", and {others} more calls" if others else ""
    say(
        f"{WORDS.get(kind, kind)} `{name}` of {file.name} has not returned for {waited:.0f} s{of}{at}{more}; "
        "Ctrl-C ends this"
    )

"""The time limit for math-verify, in seconds of CPU time."""

import logging
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

Found = TypeVar("Found")

SECONDS = 5.0
"""CPU time that math-verify may use to parse, and again to compare, before it gives up (its own default,
which it measures by the clock)."""

AGAIN = 0.1
"""Seconds of processor time between two looks at what was used, once the process has used so much; ours."""


def limited(work: Callable[[], Found], otherwise: Found) -> Found:
    """The result of the work, or `otherwise` if this thread has used `SECONDS` for it. Main thread only.

    The work calls math-verify without a limit of its own: that one is a SIGALRM, so that a process which
    merely waited for its turn would be told that an answer cannot be read. There is no limit by the clock in
    here; whoever waits for a worker has one, and a reply that exceeds it is unscored.

    Raises:
        ValueError: In another thread than the main one, which no signal reaches.
    """
    from math_verify.errors import TimeoutException

    began = time.thread_time()

    def look(_: int, __: FrameType | None) -> None:
        # The timer counts all threads together, and not what the kernel does for them.
        if time.thread_time() - began >= SECONDS:
            raise TimeoutException  # math-verify takes it for its own; no `except Exception` catches it

    log = logging.getLogger("math_verify")
    level, handler = log.level, signal.signal(signal.SIGVTALRM, look)
    log.setLevel(logging.CRITICAL)  # it reports every slow answer, and that it has no limit of its own
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS, AGAIN)
        return work()
    except TimeoutException:
        return otherwise
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
        log.setLevel(level)

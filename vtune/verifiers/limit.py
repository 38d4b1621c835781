"""The time limit for math-verify, in seconds of CPU time."""

import logging
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

Found = TypeVar("Found")

SECONDS = 5.0
"""CPU time that math-verify may use for parsing, and again for comparing, before it gives up (its own default
value, which it measures in wall-clock time)."""

AGAIN = 0.1
"""Seconds of CPU time between checks of this thread's usage, once the process has used `SECONDS`; ours."""


def limited(work: Callable[[], Found], otherwise: Found) -> Found:
    """The result of the work, or `otherwise` if this thread has used `SECONDS` for it. Main thread only.

    The work calls math-verify without math-verify's own limit: that is a SIGALRM, so a process that
    merely waited for the CPU would report that an answer cannot be read. There is no wall-clock limit
    here; whoever waits for a worker has one, and a reply that exceeds it is unscored.

    Raises:
        ValueError: In any thread other than the main one, which signals do not reach.
    """
    from math_verify.errors import TimeoutException

    began = time.thread_time()

    def look(_: int, __: FrameType | None) -> None:
        # The timer counts all threads together, without their time in the kernel.
        if time.thread_time() - began >= SECONDS:
            raise TimeoutException  # math-verify treats it as its own; no `except Exception` catches it

    log = logging.getLogger("math_verify")
    level, handler = log.level, signal.signal(signal.SIGVTALRM, look)
    log.setLevel(logging.CRITICAL)  # it logs every slow answer, and that its own limit is off
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS, AGAIN)
        return work()
    except TimeoutException:
        return otherwise
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
        log.setLevel(level)

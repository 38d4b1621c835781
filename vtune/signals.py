"""Ctrl-C, which a terminal sends to a command and to every process that it has started."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def starting_without_sigint() -> Iterator[None]:
    """Processes that this thread starts meanwhile have Ctrl-C blocked.

    While Python starts they cannot yet ignore it, and would end with a traceback beside what the command
    itself has to say. They unblock it once they can. What comes to this thread meanwhile is heard when the
    block ends.
    """
    resource_tracker.ensure_running()  # its first start unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

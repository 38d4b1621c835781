"""Ctrl-C, which a terminal sends to a command and to every process that it has started."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def starting_without_sigint() -> Iterator[None]:
    """Processes that this thread starts within the block have Ctrl-C blocked.

    While Python starts up they cannot ignore it yet, and would print a traceback next to the command's
    own messages. They unblock it once they can handle it. Signals to this thread in the meantime are
    delivered when the block ends.
    """
    resource_tracker.ensure_running()  # its first start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

"""Ctrl-C, which a terminal sends to a command and everything that it has started, and orders to stop."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


def orders_to_stop() -> tuple[signal.Signals, ...]:
    """The signals by which a scheduler, or a terminal that is closed, tells this process to stop.

    SIGHUP is not one of them where it is ignored, as under `nohup`.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return signal.SIGTERM, signal.SIGHUP


def ignore_ends_of_terminals() -> None:
    """Ignore Ctrl-C and a closed terminal in a process that is to end with the command that started it."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


class HangUp:
    """Whether this process was told that its terminal is closed: the readers of its output may be gone."""

    def __init__(self) -> None:
        self.noted = False

    def note(self, number: int) -> None:
        """Take note of a signal; for signal handlers."""
        self.noted = self.noted or number == signal.SIGHUP


HANG_UP = HangUp()
"""The one for this process."""


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

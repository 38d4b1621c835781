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


ENDS_OF_TERMINALS = (signal.SIGINT, signal.SIGHUP)
"""What a terminal sends to all processes of a command: Ctrl-C, and that it is closed."""


def ignore_ends_of_terminals() -> None:
    """Ignore them in a process that is to end with the command that started it, also those held back."""
    for number in ENDS_OF_TERMINALS:
        signal.signal(number, signal.SIG_IGN)
    # Programs that this process starts may need them.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS_OF_TERMINALS)


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
def starting_undisturbed() -> Iterator[None]:
    """Processes that this thread starts within the block have `ENDS_OF_TERMINALS` blocked.

    While Python starts up they cannot ignore them yet: they would print a traceback next to the command's
    own messages, or die without one. They unblock them once they can handle them. Signals to this thread in
    the meantime are delivered when the block ends.
    """
    resource_tracker.ensure_running()  # its first start would unblock Ctrl-C
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS_OF_TERMINALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

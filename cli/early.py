"""Ctrl-C while the `vtune` command is imported: it ends without a traceback."""

import os
import signal
from types import FrameType


def leave_at_sigint() -> None:
    """Let Ctrl-C end the process at once: nothing has been started."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is to be ignored
        signal.signal(signal.SIGINT, _leave)


def interrupt_at_sigint() -> None:
    """From here on, let Ctrl-C interrupt Python as usual."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted before anything was started: run the command again\n")
    os._exit(128 + number)  # 130: `vtune.errors` is not imported yet

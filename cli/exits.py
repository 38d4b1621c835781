"""An `exit` within a C library: it would end the command as if everything were done, or with no word why."""

import ctypes
import os
import sys
from collections.abc import Callable
from types import FrameType, TracebackType


class Exits:
    """Until `over`, ends this process with status 1 where a library calls C's `exit`, and says so.

    Python itself ends the process in this way, but calls the functions registered with `atexit` before. Only
    glibc can forget what it should call, so that with any other C library nothing is noticed.

    Args:
        tell: Takes the error, whose traceback leads to the call, and writes it.
    """

    def __init__(self, tell: Callable[[RuntimeError], None]) -> None:
        self._tell = tell
        self._process = os.getpid()
        """0 once exits are expected; a process that a library has forked may end as it likes."""
        self._mark = ctypes.c_char()
        self._met = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._meet)
        self._c = ctypes.CDLL(None)
        if self._known():
            self._c["__cxa_atexit"](self._met, None, ctypes.byref(self._mark))

    def over(self) -> None:
        """Let this process end."""
        self._process = 0
        if self._known():
            self._c["__cxa_finalize"](ctypes.byref(self._mark))  # calls and forgets what is under this mark

    def _known(self) -> bool:
        return hasattr(self._c, "gnu_get_libc_version")

    def _meet(self, _: object) -> None:
        if os.getpid() != self._process:
            return
        self._process = 0  # what follows may call `exit`, too
        try:
            error = RuntimeError("a library that it calls ended the process by C's `exit`")
            self._tell(error.with_traceback(_traced(sys._getframe().f_back)))
            sys.stderr.flush()
        finally:
            os._exit(1)


def _traced(frame: FrameType | None) -> TracebackType | None:
    """The calls that led to a frame, as a traceback."""
    trace = None
    while frame is not None:
        trace = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return trace

"""Turns on the event loop, so that many tasks that are ready at once do not hold up everything else."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

AT_A_TIME = 0.01
"""Seconds of such work before other waiting tasks get a turn; ours: a fifth of the 50 ms that a tool's
answer, or a generated turn, may wait."""


class Turns:
    """Decides when a piece of work in the event loop may start. One instance for everything on the loop.

    A group's conversations all open when its picture has been read, those of a step when the step begins,
    and many sessions may answer at once: each of these takes a millisecond or two, and without turns the
    event loop would do nothing else until the last one is done.

    Args:
        clock: Returns seconds that never go backwards.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._began: float | None = None
        """When the first piece of work began in this iteration of the loop."""
        self._thread: ThreadPoolExecutor | None = None
        """The loop's thread, once it is needed."""

    async def next(self) -> None:
        """Return at once if there is time left in this iteration of the event loop, else in a later one."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # A loop that ended in the middle of an iteration leaves its state behind.
            self._loop, self._began, self._thread = loop, None, None
        while self._began is not None and self._clock() - self._began >= AT_A_TIME:
            await asyncio.sleep(0)
        if self._began is None:
            self._began = self._clock()
            loop.call_soon(self._end)

    async def outside(self, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Do work that may wait for the disk in a thread, then return when it is this task's turn.

        The thread does nothing else: the loop's other threads may be busy for seconds.
        """
        await self.next()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="vtune-files")
        found = await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *given, **named))
        await self.next()
        return found

    def end(self) -> None:
        """Stop the thread once it has finished its work."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    def _end(self) -> None:
        self._began = None

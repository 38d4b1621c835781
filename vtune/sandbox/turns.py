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
"""Seconds of such work before whatever else waits gets its turn; ours: a fifth of the 50 ms that a tool's
answer, or a turn that has been drawn, may wait."""


class Turns:
    """Says when a piece of work in the event loop may begin. One for all that shares the loop.

    A group's conversations open when its picture is read, those of a step when the step begins, and the
    answers of many sessions come together: each takes a millisecond or two, and the event loop would come to
    nothing else before the last of them.

    Args:
        clock: Seconds of a clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._began: float | None = None
        """When the first piece began in this turn of that loop."""
        self._thread: ThreadPoolExecutor | None = None
        """Of that loop, once it is needed."""

    async def next(self) -> None:
        """Return at once where there is time left in this turn of the event loop, else in a later one."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # One that has ended in the middle of its turn does not say so.
            self._loop, self._began, self._thread = loop, None, None
        while self._began is not None and self._clock() - self._began >= AT_A_TIME:
            await asyncio.sleep(0)
        if self._began is None:
            self._began = self._clock()
            loop.call_soon(self._end)

    async def outside(self, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Do what may wait for the disk in a thread, then return in a turn of the event loop.

        The thread does nothing else: what other threads of the loop do can take seconds.
        """
        await self.next()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="vtune-files")
        found = await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *given, **named))
        await self.next()
        return found

    def end(self) -> None:
        """Let the thread go, after what it has been given."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    def _end(self) -> None:
        self._began = None

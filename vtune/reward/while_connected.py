"""Work for a client that may hang up before it is done."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.types import Receive

UNWATCHED = 0.05
"""Seconds of work before the client is watched, which costs as much as a quick answer; ours."""

T = TypeVar("T")


async def while_connected(receive: Receive, work: Awaitable[T]) -> T | None:
    """The result of some work; None if the client disconnects: the work is then cancelled and has ended.

    Args:
        receive: Messages from the client, whose request has been received.
        work: What answers it.
    """
    try:
        async with asyncio.timeout(None) as limit:
            watch = _Watch(receive, limit)
            timer = asyncio.get_running_loop().call_later(UNWATCHED, watch.start)
            try:
                return await work
            finally:
                timer.cancel()
                await watch.end()
    except TimeoutError:
        if limit.expired():
            return None
        raise


class _Watch:
    """Lets a limit expire at once if the client disconnects."""

    def __init__(self, receive: Receive, limit: asyncio.Timeout) -> None:
        self._receive = receive
        self._limit = limit
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch from now on."""
        self._task = asyncio.create_task(self._run())

    async def end(self) -> None:
        """Watch no longer."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            # Does not raise the task's cancellation, only that of this one.
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._limit.reschedule(0)

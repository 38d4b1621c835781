"""A semaphore with priorities: limits concurrent conversations, oldest step first."""

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count


class PrioritySemaphore:
    """A limited number of places for conversations.

    When steps are generated ahead, conversations of several steps compete for places: a free one goes to the
    oldest step, which is needed first, and within a step to the first in line. Nobody waits while a place is
    free.

    Args:
        room: The number of places.
    """

    def __init__(self, room: int) -> None:
        self._free = room
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()

    @asynccontextmanager
    async def taken(self, order: int) -> AsyncIterator[None]:
        """Hold a place until the block ends; a lower `order` goes first."""
        await self._take(order)
        try:
            yield
        finally:
            self._give()

    async def _take(self, order: int) -> None:
        if self._free:
            self._free -= 1
            return
        given = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (order, next(self._numbers), given))
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():
                self._give()  # a place was handed over at the same moment
            raise

    def _give(self) -> None:
        while self._waiting:
            *_, given = heapq.heappop(self._waiting)
            if not given.done():
                given.set_result(None)
                return
        self._free += 1

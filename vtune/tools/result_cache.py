"""A cache that coalesces requests: identical calls share one result, even while it is in progress."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class ResultCache(Generic[T]):
    """Results by key. Failures are not cached: the next caller tries again."""

    def __init__(self) -> None:
        self._found: dict[Hashable, asyncio.Task[T]] = {}
        self.made = 0
        """Number of results that were actually requested."""

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """The result for a key; `make` runs only if nobody has asked yet.

        Raises:
            Exception: Whatever `make` raises, to everyone who waits for it.
        """
        task = self._found.get(key)
        if task is None:
            self.made += 1
            task = self._found[key] = asyncio.create_task(_run(make))
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)  # a caller that is cancelled must not cancel it for the others

    def _forget(self, key: Hashable, task: "asyncio.Task[T]") -> None:
        if task.cancelled() or task.exception() is not None:
            self._found.pop(key, None)

    async def clear(self) -> None:
        """Forget everything, and cancel what is in progress."""
        tasks, self._found = list(self._found.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(make: Callable[[], Awaitable[T]]) -> T:
    return await make()

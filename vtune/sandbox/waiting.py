"""Waiting for file descriptors inside the running event loop, without threads."""

import asyncio
import math
import select
from collections.abc import Callable


async def readable(fd: int) -> None:
    """Wait until `fd` can be read; a pidfd can when its process has ended."""
    await readable_within(fd, math.inf)


async def readable_within(fd: int, seconds: float) -> bool:
    """Wait until `fd` can be read, or so many seconds have passed; returns which."""
    loop = asyncio.get_running_loop()
    return await _within(fd, seconds, loop.add_reader, loop.remove_reader)


async def writable_within(fd: int, seconds: float) -> bool:
    """Wait until `fd` can be written to, or so many seconds have passed; returns which."""
    loop = asyncio.get_running_loop()
    return await _within(fd, seconds, loop.add_writer, loop.remove_writer)


async def _within(
    fd: int, seconds: float, watch: Callable[..., object], forget: Callable[[int], object]
) -> bool:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bool] = loop.create_future()
    watch(fd, _finish, future, True)
    timer = None if seconds == math.inf else loop.call_later(seconds, _finish, future, False)
    try:
        return await future
    finally:
        forget(fd)
        if timer is not None:
            timer.cancel()


def _finish(future: "asyncio.Future[bool]", result: bool) -> None:
    if not future.done():
        future.set_result(result)


def is_readable(fd: int, within_ms: int = 0) -> bool:
    """Whether `fd` can be read right now, or so soon that everything may wait for it."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(within_ms))

"""Waiting for file descriptors inside the running event loop, without threads."""

import asyncio
import select


async def readable(fd: int) -> None:
    """Wait until `fd` can be read; a pidfd can when its process has ended."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _finish, future)
    try:
        await future
    finally:
        loop.remove_reader(fd)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def is_readable(fd: int) -> bool:
    """Whether `fd` can be read right now."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))

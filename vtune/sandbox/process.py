"""The trainer's end of one session process: its channel, its output file, its life."""

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vtune.sandbox.descriptors import is_readable, readable
from vtune.sandbox.guest import wire


class ProtocolError(Exception):
    """The session answered something that its runner never writes: the model's code meddled with it."""


@dataclass(slots=True)
class Process:
    """One running session process. Every method may raise OSError or EOFError when the process has gone."""

    pidfd: int
    channel: socket.socket
    output: int
    """The file that it prints to; its offset is shared, so it says how much was printed."""
    max_blob: int
    """Bytes of the largest picture that it may return."""
    max_blobs: int
    server_lives: Callable[[], bool]
    """Whether the fork server that made it still runs; when both are gone, the sandbox has failed."""
    closed: bool = False

    async def ask(self, message: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        """Send one message and read its answer.

        Raises:
            EOFError: If the process ends instead.
            ProtocolError: If the answer is not one.
        """
        os.lseek(self.output, 0, os.SEEK_SET)
        await asyncio.get_running_loop().sock_sendall(self.channel, wire.pack(message))
        return await self.answer()

    async def answer(self) -> tuple[dict[str, Any], list[bytes]]:
        """Read one message and the blobs that follow it; raises as `ask` does."""
        (length,) = wire.HEAD.unpack(await self._exactly(wire.HEAD.size))
        if length > wire.MAX_HEAD:
            raise ProtocolError(f"a head of {length} bytes")
        try:
            message = json.loads(await self._exactly(length))
            sizes = [int(size) for size in message["blobs"]]
        except (ValueError, TypeError, KeyError) as error:
            raise ProtocolError(str(error)) from error
        if len(sizes) > self.max_blobs or any(not 0 <= size <= self.max_blob for size in sizes):
            raise ProtocolError(f"blobs of {sizes} bytes")
        return message, [await self._exactly(size) for size in sizes]

    def printed(self) -> str:
        """What the current call has printed so far."""
        count = os.lseek(self.output, 0, os.SEEK_CUR)
        return os.pread(self.output, count, 0).decode("utf-8", "replace")

    def kill(self) -> None:
        """Send SIGKILL; harmless when the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    async def end(self) -> None:
        """Kill the process, wait until it is gone, and close what belongs to it."""
        if self.closed:
            return
        self.kill()
        try:
            if not is_readable(self.pidfd):
                await readable(self.pidfd)
        finally:
            self.close()

    def close(self) -> None:
        """Close the descriptors; closing the channel ends an idle process."""
        if not self.closed:
            self.closed = True
            self.channel.close()
            os.close(self.output)
            os.close(self.pidfd)

    async def _exactly(self, count: int) -> bytes:
        loop = asyncio.get_running_loop()
        content = bytearray(count)
        rest = memoryview(content)
        while rest:
            got = await loop.sock_recv_into(self.channel, rest)
            if not got:
                raise EOFError("the session process has gone")
            rest = rest[got:]
        return bytes(content)

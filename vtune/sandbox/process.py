"""The trainer's end of one session process: its channel, its output file, its lifetime.

Once it has run model code, it is stopped whenever it has no request to answer, so it can neither work nor
write in the background. The exception is a process that ran only contained code: it waits unstopped for its
next use.
"""

import contextlib
import json
import math
import os
import signal
import socket
import stat
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from vtune.sandbox.guest import wire
from vtune.sandbox.waiting import await_here, is_readable, readable, readable_within, writable_within

Look = Callable[[], Awaitable[float]]


async def _patiently() -> float:
    """Wait for as long as it takes."""
    return math.inf


def for_seconds(seconds: float) -> Look:
    """Wait this long, then raise TimeoutError.

    Data that has arrived is read first, so a busy event loop never loses an answer.
    """
    deadline = time.monotonic() + seconds

    async def look() -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no answer within {seconds:g} s")
        return left

    return look


class ProtocolError(Exception):
    """The session sent something that its runner never writes: the model's code has interfered."""


class Server(Protocol):
    """The fork server that made a process; if both are gone, the sandbox has failed."""

    def alive(self) -> bool:
        """Whether it was running a moment ago. Its sessions' files are removed only after it has gone."""

    async def lives(self) -> bool:
        """Whether it answers: unlike `alive`, this notices a death that is only about to show."""


@dataclass(slots=True)
class Process:
    """A running session process. Every method may raise OSError or EOFError once the process has gone."""

    pidfd: int
    channel: socket.socket
    output: int
    """The file that it prints to; the shared offset shows how much was printed."""
    server: Server
    closed: bool = False
    kept: bool = False
    """It has served a session before."""
    _told: str = ""
    """Number of a request that was sent, and whose answer has not been read yet."""

    @property
    def pid(self) -> int:
        """Process id as this process sees it; -1 if it has ended."""
        fd = os.open(f"/proc/self/fdinfo/{self.pidfd}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            facts = os.read(fd, 4096)
        finally:
            os.close(fd)
        return int(facts.partition(b"\nPid:")[2].split(maxsplit=1)[0])

    async def ask(
        self,
        message: dict[str, Any],
        look: Look = _patiently,
        *,
        stop: bool = True,
        alone: bool = False,
        meanwhile: Callable[[], object] | None = None,
    ) -> dict[str, Any]:
        """Send one message and read its answer.

        Args:
            message: The request.
            look: Awaited while waiting for the answer; returns the seconds until it wants to be called again,
                and raises to give up.
            stop: Stop the process once it has answered.
            alone: Nothing else is running in the sandbox: the event loop may be blocked for a moment, since a
                short answer arrives before the loop would have come round.
            meanwhile: Called once the request has been sent, so that it causes no delay.

        Raises:
            EOFError: If the process ends instead.
            ProtocolError: If the answer is invalid, or was there before the request: it then lacks the
                request's number.
        """
        os.lseek(self.output, 0, os.SEEK_SET)
        question = await self._put(message, look)
        if meanwhile is not None:
            meanwhile()
        if alone:
            await_here(self.channel.fileno())
        answer = await self.answer(look)
        if stop:
            self._signal(signal.SIGSTOP)
        return _checked(answer, question)

    async def tell(self, message: dict[str, Any], look: Look = _patiently) -> None:
        """Send a message whose answer can wait until `told`. The process keeps running in the meantime."""
        self._told = await self._put(message, look)

    async def told(self, look: Look = _patiently) -> dict[str, Any]:
        """The answer to the message from `tell`; arguments and errors are as in `ask`."""
        return _checked(await self.answer(look), self._told)

    async def _put(self, message: dict[str, Any], look: Look) -> str:
        """Send a message with a new number; return the number."""
        question = os.urandom(8).hex()
        await self._send(wire.pack({"n": question, **message}), look)
        return question

    async def _send(self, content: bytes, look: Look) -> None:
        """Send a message; if the process accepts no more of it, wait as long as `look` allows."""
        rest = memoryview(content)
        # Send as much as fits first: a process that finds its request on waking wakes up only once.
        rest = rest[self.channel.send(rest) :]
        self._signal(signal.SIGCONT)
        while rest:
            try:
                rest = rest[self.channel.send(rest) :]
            except BlockingIOError:
                await writable_within(self.channel.fileno(), await look())

    async def answer(self, look: Look = _patiently) -> dict[str, Any]:
        """Read one message; arguments and errors are as in `ask`."""
        content = bytearray()
        length = wire.HEAD.size
        while len(content) < length:
            try:
                part = self.channel.recv(wire.CHUNK)
            except BlockingIOError:
                await readable_within(self.channel.fileno(), await look())
                continue
            if not part:
                raise EOFError("the session process has gone")
            content += part
            if length == wire.HEAD.size and len(content) >= length:
                length += wire.HEAD.unpack_from(content)[0]
                if length > wire.MAX_ANSWER:
                    raise ProtocolError(f"an answer of {length} bytes")
        if len(content) > length:
            raise ProtocolError("more than one answer")
        try:
            message = json.loads(content[wire.HEAD.size :])
        except (ValueError, RecursionError) as error:
            raise ProtocolError(str(error)) from error
        if not isinstance(message, dict):
            raise ProtocolError("an answer that is not an object")
        return message

    def printed(self) -> str:
        """What the current call has printed so far."""
        # The session shares the offset, and may have set it to anything.
        count = min(os.lseek(self.output, 0, os.SEEK_CUR), os.fstat(self.output).st_size)
        return os.pread(self.output, count, 0).decode("utf-8", "replace")

    def unlinked_bytes(self) -> int:
        """Bytes on disk in files that it has deleted but holds open, which no scan of its folder finds.

        Files that are only mapped are not counted; a session's memory limit bounds those. 0 if the kernel
        does not let this process look.
        """
        total = 0
        with contextlib.suppress(OSError):
            folder = f"/proc/{self.pid}/fd"
            # Called twenty times a second for each running call: a `Path` for each would take twice as long.
            for name in os.listdir(folder):  # noqa: PTH208
                facts = os.stat(f"{folder}/{name}")  # noqa: PTH116
                if not facts.st_nlink and stat.S_ISREG(facts.st_mode):
                    total += facts.st_blocks * 512
        return total

    def waited(self) -> float:
        """Seconds since its start in which it was ready to run, but others had the cores.

        0 if it has ended, or the kernel does not report this.
        """
        with contextlib.suppress(OSError), open(f"/proc/{self.pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
        return 0.0

    def kill(self) -> None:
        """Send SIGKILL; harmless if the process has ended."""
        self._signal(signal.SIGKILL)

    async def end(self) -> None:
        """Kill the process, wait until it is gone, and close its descriptors."""
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

    def _signal(self, signum: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signum)


def _checked(answer: dict[str, Any], question: str) -> dict[str, Any]:
    """An answer without its number.

    Raises:
        ProtocolError: If it answers another request.
    """
    if answer.pop("n", None) != question:
        raise ProtocolError(f"an answer to another question{_failure(answer)}")
    return answer


def _failure(answer: dict[str, Any]) -> str:
    """The error message of a session that could not be confined."""
    return f": {answer['failed']}" if "failed" in answer else ""

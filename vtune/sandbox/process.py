"""The trainer's end of one session process: its channel, its output file, its lifetime.

Once it has run a model's code it is stopped whenever it has no question to answer, so it can neither work nor
write behind our back. The exception is one whose code was all contained: it waits unstopped for its next use.
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
    """Wait for so long, then raise TimeoutError.

    What arrived meanwhile is read first, so a busy event loop costs nobody their answer.
    """
    deadline = time.monotonic() + seconds

    async def look() -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no answer within {seconds:g} s")
        return left

    return look


class ProtocolError(Exception):
    """The session answered something that its runner never writes: the model's code meddled with it."""


class Server(Protocol):
    """The fork server that made a process; when both are gone, the sandbox has failed."""

    def alive(self) -> bool:
        """Whether it still ran a moment ago. The files of its sessions are removed only after it has gone."""

    async def lives(self) -> bool:
        """Whether it answers: unlike `alive`, this notices a death that is only about to show."""


@dataclass(slots=True)
class Process:
    """One running session process. Every method may raise OSError or EOFError when the process has gone."""

    pidfd: int
    channel: socket.socket
    output: int
    """The file that it prints to; its offset is shared, so it says how much was printed."""
    server: Server
    closed: bool = False
    kept: bool = False
    """It has served a session before."""
    _told: str = ""
    """Number of a question that was put, and whose answer nobody has read yet."""

    @property
    def pid(self) -> int:
        """Process id as this process sees it, -1 when it has ended."""
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
            message: What to ask.
            look: Awaited while the answer is; returns the seconds until it wants to be called
                again, and raises to give up.
            stop: Stop the process when it has answered.
            alone: Nothing else of the sandbox is under way: a moment may be spent on waiting right here,
                because a short answer comes before the event loop would have come round.
            meanwhile: Done when the question has been sent, so that nobody waits for it.

        Raises:
            EOFError: If the process ends instead.
            ProtocolError: If the answer is not one, or was there before the question: it cannot know the
                question's number.
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
        """Send a message whose answer can wait: `told` reads it. The process goes on meanwhile."""
        self._told = await self._put(message, look)

    async def told(self, look: Look = _patiently) -> dict[str, Any]:
        """The answer to what `tell` sent; takes and raises what `ask` does."""
        return _checked(await self.answer(look), self._told)

    async def _put(self, message: dict[str, Any], look: Look) -> str:
        """Send a message under a number of its own, and return that."""
        question = os.urandom(8).hex()
        await self._send(wire.pack({"n": question, **message}), look)
        return question

    async def _send(self, content: bytes, look: Look) -> None:
        """Send a message; a process that takes no more of it is given as long as `look` says."""
        rest = memoryview(content)
        # As much as fits goes first: a process that wakes up and finds its question there wakes up only once.
        rest = rest[self.channel.send(rest) :]
        self._signal(signal.SIGCONT)
        while rest:
            try:
                rest = rest[self.channel.send(rest) :]
            except BlockingIOError:
                await writable_within(self.channel.fileno(), await look())

    async def answer(self, look: Look = _patiently) -> dict[str, Any]:
        """Read one message; takes and raises what `ask` does."""
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
        # The session shares the offset, and may have put it anywhere.
        count = min(os.lseek(self.output, 0, os.SEEK_CUR), os.fstat(self.output).st_size)
        return os.pread(self.output, count, 0).decode("utf-8", "replace")

    def unlinked_bytes(self) -> int:
        """Bytes of disk in files that it holds open and has removed, which no look at its folder finds.

        Files that it has only mapped are not seen; a session's limit on memory bounds those. Not known, and
        0, where the kernel lets this process not look.
        """
        total = 0
        with contextlib.suppress(OSError):
            folder = f"/proc/{self.pid}/fd"
            # Twenty times a second for each call that runs: a `Path` for each would take twice as long.
            for name in os.listdir(folder):  # noqa: PTH208
                facts = os.stat(f"{folder}/{name}")  # noqa: PTH116
                if not facts.st_nlink and stat.S_ISREG(facts.st_mode):
                    total += facts.st_blocks * 512
        return total

    def waited(self) -> float:
        """Seconds since its beginning in which it could have run, and others had the cores.

        0 where it has ended, or the kernel does not say.
        """
        with contextlib.suppress(OSError), open(f"/proc/{self.pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
        return 0.0

    def kill(self) -> None:
        """Send SIGKILL; harmless when the process has ended."""
        self._signal(signal.SIGKILL)

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

    def _signal(self, signum: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signum)


def _checked(answer: dict[str, Any], question: str) -> dict[str, Any]:
    """An answer without its number.

    Raises:
        ProtocolError: If it is to another question.
    """
    if answer.pop("n", None) != question:
        raise ProtocolError(f"an answer to another question{_failure(answer)}")
    return answer


def _failure(answer: dict[str, Any]) -> str:
    """What a session says that could not be confined."""
    return f": {answer['failed']}" if "failed" in answer else ""

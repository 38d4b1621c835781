"""The text of web pages, extracted in other processes: one that takes minutes is ended.

In a thread it could not be ended: it would share this process's interpreter, and keep it from exiting.
"""

import asyncio
import signal
import struct
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path

from vtune.errors import ServiceError
from vtune.files.json_text import parse_json
from vtune.tools.fetch import NotRead
from vtune.tools.observation import encodable

PROGRAM = Path(__file__).with_name("page_worker.py")

PROCESSES = 4
"""Limit on the processes, which start when they are needed; ours: most pages take less than 0.1 s."""

LENGTH = struct.Struct("!I")
"""As in the program, which imports nothing of vtune, so that it starts fast."""


class PageText:
    """Extracts text from HTML; each process serves one page at a time.

    Args:
        timeout_s: Limit for the extraction of a page, and for the wait for a process; in seconds.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._room = asyncio.Semaphore(PROCESSES)
        self._all: set[Process] = set()
        self._idle: list[Process] = []
        self._closed = False

    async def of(self, html: str) -> str:
        """The text of a page; empty if there is none.

        Raises:
            NotRead: If the page takes too long, or the extractor fails on it.
            ServiceError: If there can be no process for it, or this is closed.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._room.acquire()
        except TimeoutError:
            raise self._failed(-signal.SIGALRM) from None
        try:
            answer = await self._answer(encodable(html).encode())
        finally:
            self._room.release()
        if "problem" in answer:
            raise NotRead(answer["problem"])
        return answer["text"]

    async def _answer(self, html: bytes) -> dict[str, str]:
        while True:
            used = bool(self._idle)
            process = self._idle.pop() if used else await self._started()
            try:
                answer = await _asked(process, html)
            except (EOFError, ConnectionError):
                self._all.discard(process)
                status = await process.wait()
                # One that had served before may have been ended from outside while it was idle.
                if used and status != -signal.SIGALRM and not self._closed:
                    continue
                raise self._failed(status) from None
            except BaseException:  # cancelled: its answer must not become that of the next page
                await self._end(process)
                raise
            self._idle.append(process)
            return answer

    async def _started(self) -> Process:
        if self._closed:
            raise self._failed(-signal.SIGTERM)
        try:
            # -P: modules beside the program must not hide those of Python, such as `http`. In a session of
            # its own, Ctrl-C does not reach it; it ends when its input does.
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                str(PROGRAM),
                str(self._timeout_s),
                stdin=PIPE,
                stdout=PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ServiceError(
                f"pages cannot be read: {error}", fix="see the limits of this machine"
            ) from None
        self._all.add(process)
        return process

    def _failed(self, status: int) -> Exception:
        """What the end of a process means: a crash is the page's fault, an exit or being ended is not."""
        if status == -signal.SIGALRM:
            return NotRead(f"its text was not found within {self._timeout_s:g} s", passing=True)
        if self._closed or -status in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            return ServiceError("pages are no longer read: their extractor was ended", fix="--resume the run")
        if status < 0:
            return NotRead(f"its text cannot be extracted ({signal.Signals(-status).name})", passing=True)
        return ServiceError(
            f"pages cannot be read: their extractor ended with status {status}",
            fix="see its error above; pip install --force-reinstall 'vtune[web]'",
        )

    async def _end(self, process: Process) -> None:
        self._all.discard(process)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    async def aclose(self) -> None:
        """End all processes, also those at work; what they read is not read."""
        self._closed = True
        self._idle.clear()
        for process in list(self._all):
            await self._end(process)


async def _asked(process: Process, html: bytes) -> dict[str, str]:
    """The answer of a process.

    Raises:
        EOFError: If it ended.
        ConnectionError: The same, noticed while it was being sent the page.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(LENGTH.pack(len(html)) + html)
    await process.stdin.drain()
    (size,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
    answer: dict[str, str] = parse_json(await process.stdout.readexactly(size))
    return answer

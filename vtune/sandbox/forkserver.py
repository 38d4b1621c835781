"""The trainer's end of the fork server: start it, request sessions, check that it is alive, end it."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from vtune.errors import SandboxUnavailable, ServiceError
from vtune.sandbox.guest import folders
from vtune.sandbox.guest.settings import Settings
from vtune.sandbox.process import Process
from vtune.sandbox.waiting import is_readable, readable

START_SECONDS = 600.0
"""Ours: imports from a cold disk, or when memory is short; a warm start takes well under a second. A Python
that cannot import what it needs exits at once."""
ANSWER_SECONDS = 20.0
REMOVE_SECONDS = 600.0
"""Ours: tens of thousands of files on a busy disk."""
END_SECONDS = 5.0
SESSION_FDS = 3
"""Descriptors of a session: its pidfd, its channel, its output file."""

BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); import guest; sys.path.pop(0); "
    "from guest import guardian; guardian.main(int(sys.argv[2]), sys.argv[3])"
)
"""Loads the package `guest` from its folder, then takes the folder off the path again."""


_Answer = tuple[dict[str, Any], list[int]]
"""An answer of the fork server, and the descriptors that came with it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session lives; if its process is lost, a new one takes the place over."""

    folder: str
    uid: int | None
    """The user that owns it, if sessions have their own users."""


class ForkServer:
    """One fork server. Make it with `start`."""

    def __init__(self, process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
        self.process = process
        self.control = control
        self.pidfd = os.pidfd_open(process.pid)
        self.ended = False
        self._gone = False
        """The other end of the socket was found closed."""
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[_Answer]] = {}
        """Requests that are not answered yet, by number."""
        self.facts: dict[str, Any] = {}
        """What isolation is in force."""

    @classmethod
    async def start(cls, settings: Settings) -> "ForkServer":
        """Start a fork server, and its guardian, which removes the sandbox's folder at the end.

        Raises:
            SandboxUnavailable: If this machine offers no sufficient protection.
            ServiceError: If it does not come up.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, tempfile.TemporaryFile() as log:
            process = start_process(theirs, settings, log)
            theirs.close()
            ours.setblocking(False)
            server = cls(process, ours)
            await server._come_up(log)
        return server

    async def _come_up(self, log: IO[bytes]) -> None:
        """Wait until it is ready; `log` receives the process's standard error."""
        try:
            async with asyncio.timeout(START_SECONDS):
                # These come from two processes: on a busy machine either may be first.
                while not {"ready", "zygote"} <= self.facts.keys():
                    self.facts.update(json.loads(await self._receive()))
                    if "unavailable" in self.facts:
                        await self.end()
                        raise SandboxUnavailable(
                            f"no sandbox on this machine: {self.facts['unavailable']}",
                            fix="a Linux kernel with Landlock (5.13 or later), or root, or user namespaces; "
                            "`vtune doctor` shows each layer; `--sandbox unsafe` runs without protection",
                        )
        except (OSError, EOFError) as error:
            await self.end()
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines()
            late = isinstance(error, TimeoutError) and not said
            why = f"it was not ready after {START_SECONDS:g} s" if late else said[-1] if said else error
            raise ServiceError(
                f"the sandbox's fork server did not start: {why}",
                fix="try again when the machine is less busy"
                if late
                else "check that numpy, cv2, PIL and matplotlib can be imported by this Python",
            ) from error
        except BaseException:
            self.abandon()
            raise
        asyncio.get_running_loop().add_reader(self.control.fileno(), self._listen)

    @property
    def zygote(self) -> int:
        """Process id of the fork server proper."""
        return int(self.facts["zygote"])

    def alive(self) -> bool:
        """Whether it can still serve."""
        if self.ended or self._gone or is_readable(self.pidfd):
            return False
        try:
            # Its sockets close before its children learn of its death, so this is the first sign.
            return self.control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    async def lives(self) -> bool:
        """Whether it answers: unlike `alive`, this notices a death that is only about to show."""
        try:
            await self.children()
        except (OSError, EOFError):
            return False
        return True

    async def children(self) -> int:
        """Number of its child processes: sessions, including idle ones, and processes that remove folders.

        Raises:
            OSError, EOFError: If it does not answer.
        """
        answer, _ = await self._request({"ping": True}, 0)
        return int(answer["children"])

    async def spawn(self, place: Place | None) -> tuple[Process, Place]:
        """A session process: a waiting one, or a new one in the place of one that ended.

        Raises:
            ServiceError: If the fork server, or this process, cannot provide one.
        """
        try:
            request = {"place": None if place is None else asdict(place)}
            answer, fds = await self._request(request, SESSION_FDS)
        except (OSError, EOFError) as error:
            raise ServiceError(
                f"the sandbox cannot start a session: {error or type(error).__name__}",
                fix="raise the limits on open files and on processes (ulimit -n, ulimit -u), or free memory",
            ) from error
        pidfd, channel, output = fds
        ours = socket.socket(fileno=channel)
        ours.setblocking(False)
        process = Process(pidfd=pidfd, channel=ours, output=output, server=self)
        return process, Place(**answer["place"])

    async def remove(self, folder: str) -> None:
        """Have the folder of a finished session removed, which takes a while on a busy disk.

        Raises:
            OSError, EOFError: If that fails.
        """
        answer, _ = await self._request({"remove": folder}, 0, seconds=REMOVE_SECONDS)
        if "failed" in answer:
            raise OSError(answer["failed"])

    async def end(self) -> None:
        """Ask it to end, which ends all its sessions and removes its folder; kill it if it does not."""
        self._hang_up()
        try:
            async with asyncio.timeout(END_SECONDS):
                if not is_readable(self.pidfd):
                    await readable(self.pidfd)
        except TimeoutError:
            # It is stuck; `abandon` below kills it.
            return
        finally:
            self.abandon()

    def abandon(self) -> None:
        """End it at once; the kernel then ends its sessions, and its folder is left to the caller."""
        if self.ended:
            return
        self.ended = True
        self._hang_up()
        self.process.kill()
        self.process.wait()
        os.close(self.pidfd)

    def _hang_up(self) -> None:
        if self.control.fileno() >= 0:
            self._fail(EOFError("the fork server was ended"))
            with contextlib.suppress(OSError):  # it may have gone already
                # A process forked from this one may hold the socket too: closing alone would go unnoticed.
                self.control.shutdown(socket.SHUT_RDWR)
            self.control.close()

    async def _request(
        self, request: dict[str, Any], fds_expected: int, *, seconds: float = ANSWER_SECONDS
    ) -> tuple[dict[str, Any], list[int]]:
        """The answer to a request, with its descriptors. Several requests may be pending at a time.

        Raises:
            OSError, EOFError: If there is no answer, or the request fails.
        """
        if self.ended:
            raise EOFError("the fork server has ended")
        number = next(self._numbers)
        try:
            self.control.send(json.dumps({"number": number, **request}).encode())
        except ConnectionError:
            # Answers from before its death may still be in the socket, and would hide the end from `alive`.
            self._gone = True
            raise
        future: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            # An answer that has arrived counts, however late a busy event loop reads it.
            await asyncio.wait([future], timeout=seconds)
            if not future.done():
                raise TimeoutError(f"the fork server did not answer within {seconds:g} s")
            answer, fds = future.result()
        except BaseException:
            if future.done() and not future.cancelled() and future.exception() is None:
                # Cancelled at the moment when the answer came.
                _release(*future.result())
            raise
        finally:
            del self._asked[number]
        if len(fds) != fds_expected:
            _release(answer, fds)
            raise OSError(answer.get("failed", "too many open files"))
        return answer, fds

    def _listen(self) -> None:
        """Deliver all answers that have arrived."""
        while True:
            try:
                message, fds, _, _ = socket.recv_fds(
                    self.control, 1 << 16, SESSION_FDS, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except OSError as error:
                self._fail(error)
                return
            if not message:
                self._fail(EOFError("the fork server has gone"))
                return
            answer = json.loads(message)
            future = self._asked.get(answer["number"])
            if future is None or future.done():
                # The request was given up; its session ends when its channel is closed.
                _release(answer, fds)
            else:
                future.set_result((answer, fds))

    def _fail(self, error: Exception) -> None:
        self._gone = True
        asyncio.get_running_loop().remove_reader(self.control.fileno())
        for future in self._asked.values():
            if not future.done():
                future.set_exception(error)

    async def _receive(self) -> bytes:
        await readable(self.control.fileno())
        message = self.control.recv(1 << 16)
        if not message:
            raise EOFError("the fork server has gone")
        return message


def start_process(control: socket.socket, settings: Settings, log: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Start the guardian, which starts the fork server.

    Args:
        control: The guardian's end of the socket.
        settings: Settings of the sandbox.
        log: Receives standard error.
    """
    arguments = [str(Path(__file__).parent), str(control.fileno()), settings.to_json()]
    return subprocess.Popen(
        [sys.executable, "-I", "-c", BOOT, *arguments],
        pass_fds=[control.fileno()],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        start_new_session=True,
        cwd="/",
    )


def _release(answer: dict[str, Any], fds: list[int]) -> None:
    """Release a session that nobody wants; a folder that is still in use stays."""
    if fds:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fds[0], signal.SIGKILL)
    for fd in fds:
        os.close(fd)
    if answer.get("fresh"):
        folders.remove(answer["place"]["folder"])


def environment() -> dict[str, str]:
    """The complete environment of a session."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - a user may have no home
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        # Threads in the libraries would make forking unsafe.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "1",
        "MPLBACKEND": "module://guest.figures",
        # Building the list of fonts takes a while; this is where it usually is. Sessions cannot reach it.
        "MPLCONFIGDIR": f"{cache}/matplotlib",
        "OPENCV_LOG_LEVEL": "ERROR",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        # Relative to whatever folder the code works in.
        "TMPDIR": ".",
    }

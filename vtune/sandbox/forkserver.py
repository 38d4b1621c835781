"""The trainer's end of the fork server: start it, ask it for sessions, see whether it lives, end it."""

import asyncio
import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from vtune.errors import ServiceError
from vtune.sandbox.descriptors import is_readable, readable
from vtune.sandbox.process import Process

START_SECONDS = 60.0
"""Ours: imports from a cold disk; a warm start takes well under a second."""
SPAWN_SECONDS = 20.0
END_SECONDS = 5.0

BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); import guest; sys.path.pop(0); "
    "from guest import zygote; zygote.main(int(sys.argv[2]), sys.argv[3])"
)
"""Loads the package `guest` from its folder and takes the folder off the path again."""

# Constants of fcntl that Python 3.11 does not name on every build.
F_ADD_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW = 1033, 1, 2, 4


class ForkServer:
    """One fork server. Make it with `start`."""

    def __init__(self, process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
        self.process = process
        self.control = control
        self.pidfd = os.pidfd_open(process.pid)
        self.ended = False
        self.number = 0
        """Of the last spawn request."""
        self.facts: dict[str, Any] = {}
        """What isolation is in force."""

    @classmethod
    async def start(cls, root: Path) -> "ForkServer":
        """Start a fork server for the sandbox folder `root`, which it removes at its end.

        Raises:
            ServiceError: If it does not come up.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = [str(Path(__file__).parent), str(theirs.fileno()), str(root)]
        with theirs, tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                [sys.executable, "-I", "-c", BOOT, *arguments],
                pass_fds=[theirs.fileno()],
                env=_environment(root),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
            theirs.close()
            ours.setblocking(False)
            server = cls(process, ours)
            await server._come_up(log)
        return server

    async def _come_up(self, log: IO[bytes]) -> None:
        """Wait for the first message; `log` is what the process says to standard error."""
        try:
            async with asyncio.timeout(START_SECONDS):
                message, _ = await self._receive()
            self.facts = json.loads(message)
        except (OSError, EOFError) as error:
            await self.end()
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines()
            raise ServiceError(
                f"the sandbox's fork server did not start: {said[-1] if said else error}",
                fix="check that numpy, cv2 and PIL can be imported by this Python",
            ) from error
        except BaseException:
            self.abandon()
            raise

    def alive(self) -> bool:
        """Whether it can still serve."""
        if self.ended or is_readable(self.pidfd):
            return False
        try:
            # Its sockets close before its children are told of its death, so this is the first sign.
            return self.control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    async def spawn(self, request: dict[str, Any], *, output_bytes: int, max_blobs: int) -> Process:
        """Fork one session process; the caller must not run two spawns at once.

        Args:
            request: What `guest.runner.Runner` reads.
            output_bytes: Room for the printed text of one call.
            max_blobs: Pictures that one call may return.

        Raises:
            ServiceError: If the fork server, or this process, cannot.
        """
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                ours.setblocking(False)
                output = _output_file(output_bytes)
                try:
                    pidfd = await self._request(request, theirs, output)
                except BaseException:
                    ours.close()
                    os.close(output)
                    raise
        except (OSError, EOFError) as error:
            raise ServiceError(
                f"the sandbox cannot start a session: {error or type(error).__name__}",
                fix="raise the limit on open files (ulimit -n), or free memory",
            ) from error
        return Process(
            pidfd=pidfd,
            channel=ours,
            output=output,
            max_blob=request["file_bytes"],
            max_blobs=max_blobs,
            server_lives=self.alive,
        )

    async def end(self) -> None:
        """Ask it to end, which ends all its sessions and removes its folder; kill it if it does not."""
        self.control.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                if not is_readable(self.pidfd):
                    await readable(self.pidfd)
        except TimeoutError:
            # It is stuck; the next line does not ask.
            return
        finally:
            self.abandon()

    def abandon(self) -> None:
        """End it at once; the kernel then ends its sessions, and its folder is left to the caller."""
        if self.ended:
            return
        self.ended = True
        self.control.close()
        self.process.kill()
        self.process.wait()
        os.close(self.pidfd)

    async def _request(self, request: dict[str, Any], channel: socket.socket, output: int) -> int:
        """The pidfd of a new session process."""
        async with asyncio.timeout(SPAWN_SECONDS):
            self.number += 1
            message = json.dumps({**request, "number": self.number}).encode()
            socket.send_fds(self.control, [message], [channel.fileno(), output])
            while True:
                message, fds = await self._receive()
                answer = json.loads(message)
                if answer["number"] == self.number:
                    if not fds:
                        raise OSError(answer.get("failed", "too many open files"))
                    return fds[0]
                # The answer to a request that was given up; that session ends with its channel.
                for fd in fds:
                    os.close(fd)

    async def _receive(self) -> tuple[bytes, list[int]]:
        await readable(self.control.fileno())
        message, fds, _, _ = socket.recv_fds(self.control, 1 << 16, 1)
        if not message:
            raise EOFError("the fork server has gone")
        return message, fds


def _environment(root: Path) -> dict[str, str]:
    """All that a session may know of its surroundings."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(root),
        "LANG": "C.UTF-8",
        # Threads in the libraries would make forking unsafe.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "1",
        "MPLBACKEND": "module://guest.figures",
        "MPLCONFIGDIR": str(root / "matplotlib"),
        "OPENCV_LOG_LEVEL": "ERROR",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }


def _output_file(size: int) -> int:
    """A file in memory of a size that cannot change; printing beyond it fails instead of filling memory."""
    fd = os.memfd_create("output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)
    return fd

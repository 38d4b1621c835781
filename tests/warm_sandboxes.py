"""Sandboxes whose fork servers are forked from one process that has already imported everything they need.

Starting a sandbox is mostly imports. Tests of code that uses sandboxes start hundreds of them; the tests of
the sandbox itself start each one as users do.
"""

import functools
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from vtune.sandbox import forkserver
from vtune.sandbox.guest.settings import Settings

BOOT = (
    "import runpy, sys; sys.path.insert(0, sys.argv[1]); import guest; sys.path.pop(0); "
    "runpy.run_path(sys.argv[2])['serve'](int(sys.argv[3]))"
)


class Forked:
    """The part of `subprocess.Popen` that the sandbox needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended = False

    def kill(self) -> None:
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        if not self.ended:
            os.waitpid(self.pid, 0)
            self.ended = True


class Zygote:
    """Belongs to the process that started it, and ends with it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.lock = threading.Lock()
        self.asks, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here = Path(__file__).parent
        words = [str(Path(forkserver.__file__).parent), str(here / "warm_zygote.py"), str(theirs.fileno())]
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-c", BOOT, *words],
                pass_fds=[theirs.fileno()],
                env=forkserver.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
            )

    def fork(self, control: socket.socket, settings: Settings, log: IO[bytes]) -> Forked:
        request = {"settings": settings.to_json(), "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)}
        with self.lock:
            socket.send_fds(self.asks, [json.dumps(request).encode()], [control.fileno(), log.fileno()])
            return Forked(int(self.asks.recv(64)))


zygote = functools.cache(Zygote)


@pytest.fixture(scope="module", autouse=True)
def warm_sandboxes() -> Iterator[None]:
    start = forkserver.start_process

    def fork(control: socket.socket, settings: Settings, log: IO[bytes]) -> object:
        warm = zygote()
        # In a process that a test has forked, the zygote's forks would not be its children.
        return (warm.fork if warm.owner == os.getpid() else start)(control, settings, log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forkserver, "start_process", fork)
        yield

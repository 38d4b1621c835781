"""The fork server: one clean process with the image libraries loaded, forked once for each session.

It is started by the trainer as a fresh program and never holds anything of it. It ends, with all sessions
and the sandbox folder, when the trainer closes the control socket or dies.
"""

import contextlib
import fcntl
import functools
import gc
import json
import os
import random
import resource
import select
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from . import confine, wire

CHANNEL = 3
"""Descriptor of a session's channel to the trainer."""
MakeRunner = Callable[[dict[str, Any]], Any]
"""From a spawn request to its `runner.Runner`."""


class _Stop(Exception):
    """The trainer has gone."""


def main(control_fd: int, root: str) -> None:
    """Serve spawn requests until the trainer goes.

    Args:
        control_fd: A SOCK_SEQPACKET socket to the trainer.
        root: The sandbox folder, removed at the end.

    Raises:
        RuntimeError: If a library has started a thread: forking would then be unsafe.
    """
    signal.signal(signal.SIGTERM, _stop)
    control = socket.socket(fileno=control_fd)
    children: dict[int, int] = {}
    try:
        # Namespaces first: the kernel wants a single thread, and the libraries may start some.
        network_note = confine.leave_network()
        # After the namespaces: the kernel forgets this wish when a process changes its credentials.
        confine.die_with_parent(signal.SIGTERM)
        make_runner = _load()
        threads = len(list(Path("/proc/self/task").iterdir()))
        if threads != 1:
            raise RuntimeError(f"the fork server has {threads} threads, and only one may fork")
        facts = {
            "network_namespace": not network_note,
            "network_note": network_note,
            "seccomp": confine.can_filter(),
            "uid": os.getuid(),
        }
        control.send(json.dumps(facts).encode())
        while True:
            _serve(control, children, make_runner)
    except _Stop:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for pidfd, pid in children.items():
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.waitpid(pid, 0)
        shutil.rmtree(root, ignore_errors=True)


def _stop(signum: int, frame: FrameType | None) -> NoReturn:
    raise _Stop


def _load() -> MakeRunner:
    """Import the libraries, hook them, and touch what they load lazily, so that sessions share the pages."""
    import io

    import cv2
    import numpy as np
    import PIL.ImageDraw
    import PIL.ImageEnhance
    import PIL.ImageFilter
    import PIL.ImageFont
    import PIL.ImageOps
    import PIL.WebPImagePlugin

    # The runner before the hooks: it keeps some functions as they were.
    from . import hooks, runner

    cv2.setNumThreads(0)
    PIL.Image.preinit()
    np.random.seed(0)
    picture = np.zeros((32, 32, 3), np.uint8)
    for kind in (".png", ".jpg"):
        cv2.imdecode(cv2.imencode(kind, picture)[1], cv2.IMREAD_COLOR)
    cv2.cvtColor(cv2.resize(picture, (16, 16)), cv2.COLOR_BGR2RGB)
    for name in ("PNG", "JPEG"):
        file = io.BytesIO()
        PIL.Image.fromarray(picture).save(file, name)
        PIL.Image.open(file).load()
    make_runner = functools.partial(runner.Runner, tracker=hooks.install())
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.collect()
    gc.freeze()
    return make_runner


def _serve(control: socket.socket, children: dict[int, int], make_runner: MakeRunner) -> None:
    """Wait for one event: a request, the end of the trainer, or the end of a session."""
    poll = select.poll()
    for fd in (control.fileno(), *children):
        poll.register(fd, select.POLLIN)
    for fd, _ in poll.poll():
        if fd in children:
            os.waitpid(children.pop(fd), 0)
            os.close(fd)
            continue
        message, fds, _, _ = socket.recv_fds(control, 1 << 16, 2)
        if not message:
            raise _Stop
        _fork(json.loads(message), fds, control, children, make_runner)
        for received in fds:
            os.close(received)


def _fork(
    request: dict[str, Any],
    fds: list[int],
    control: socket.socket,
    children: dict[int, int],
    make_runner: MakeRunner,
) -> None:
    """Fork one session and answer with its pidfd, or with the reason why there is none."""
    answer = {"number": request["number"]}
    server = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        control.send(json.dumps({**answer, "failed": str(error)}).encode())
        return
    if pid == 0:
        _become_session(request, fds[0], fds[1], make_runner, server)
    pidfd = os.pidfd_open(pid)
    children[pidfd] = pid
    socket.send_fds(control, [json.dumps(answer).encode()], [pidfd])


def _become_session(
    request: dict[str, Any], channel: int, output: int, make_runner: MakeRunner, server: int
) -> NoReturn:
    """Turn the freshly forked process into a confined session; never returns to the fork server's code."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        confine.die_with_parent(signal.SIGKILL)
        if os.getppid() != server:
            raise EOFError("the fork server has gone")
        _arrange_descriptors(channel, output)
        _become(request, make_runner)
    except EOFError:
        # The trainer, or the fork server, has gone: nobody is left to tell.
        pass
    finally:
        # Whatever happened, this process must not fall back into the fork server's loop; a session that could
        # not start shows as the end of its channel.
        os._exit(0)


def _become(request: dict[str, Any], make_runner: MakeRunner) -> None:
    try:
        os.umask(0o022)
        os.chdir(request["folder"])
        _seed(request["seed"])
        session = make_runner(request)
        confine.confine(
            memory=request["memory"],
            cpu_seconds=request["cpu_seconds"],
            file_bytes=request["file_bytes"],
            open_files=request["open_files"],
        )
    except OSError as error:
        wire.send(CHANNEL, {"failed": str(error)})
        return
    wire.send(CHANNEL, {"ready": True})
    session.serve(CHANNEL)


def _arrange_descriptors(channel: int, output: int) -> None:
    """0 and 2 = nothing, 1 = the output file, 3 = the channel, and no other."""
    null = os.open(os.devnull, os.O_RDWR)
    # Out of the way first: a received descriptor may itself be one of the targets.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 16) for fd in (null, output, null, channel)]
    for target, fd in enumerate(high):
        os.dup2(fd, target)
    with os.scandir("/proc/self/fd") as entries:
        others = [int(entry.name) for entry in entries if int(entry.name) > CHANNEL]
    for fd in others:
        with contextlib.suppress(OSError):  # the listing's own descriptor is closed by now
            os.close(fd)


def _seed(seed: int) -> None:
    import cv2
    import numpy as np

    random.seed(seed)
    np.random.seed(seed % 2**32)
    cv2.setRNGSeed(seed % 2**31)

"""A process that has imported what a sandbox's fork server imports, and forks into one on request.

Like a fork server it imports nothing of the tests.
"""

import ctypes
import gc
import json
import os
import platform
import resource
import signal
import socket
import sys
from typing import Any

CLONE = {"x86_64": 56, "aarch64": 220}
CLONE_PARENT = 0x8000
READY = 2
"""Sessions that a fork server keeps ready: tests use few at a time, and to fork and end one takes 10 ms."""


def serve(asks: int) -> None:
    """Answer each request for a fork with its process id, until the tests end.

    Args:
        asks: Descriptor of a SOCK_SEQPACKET socket; each request carries the trainer's socket and the log.
    """
    _import()
    gc.collect()
    gc.freeze()
    asked = socket.socket(fileno=asks)
    while True:
        message, fds, _, _ = socket.recv_fds(asked, 1 << 16, 2)
        if not message:
            os._exit(0)
        pid = _fork_beside()
        if pid == 0:
            asked.close()
            _become_sandbox(json.loads(message), *fds)
        for fd in fds:
            os.close(fd)
        asked.send(str(pid).encode())


def _import() -> None:
    import io

    from guest import forking  # type: ignore[import-not-found]

    with forking.hooks_run_once():
        import cv2  # noqa: F401
        import matplotlib.pyplot as plt
        import PIL.Image
        from guest import guardian, hooked, runner, zygote  # noqa: F401
    zygote.FIRST_WARM = READY
    # Trigger lazy loading, e.g. of fonts, after the hooks that would release them.
    PIL.Image.init()
    plt.figure().gca().set_title("warm")
    plt.savefig(io.BytesIO())
    plt.close("all")


def _fork_beside() -> int:
    """Like `os.fork`, but the child becomes our parent's: a sandbox serves only its parent process."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    number = CLONE[platform.machine()]
    pid = int(ctypes.PyDLL(None).syscall(number, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError("no process could be forked")
    return pid


def _become_sandbox(asked: dict[str, Any], control: int, log: int) -> None:
    from guest import guardian

    status = 1
    try:
        os.setsid()
        os.dup2(log, 2)
        os.close(log)
        resource.setrlimit(resource.RLIMIT_NOFILE, tuple(asked["open_files"]))
        guardian.main(control, asked["settings"])
        status = 0
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(status)

"""The first process of a sandbox: starts the fork server and, whatever ends it, cleans up.

It is a small clean program that loads no library, runs no model code, and outlives everything else: the
sessions, the fork server and, for a moment, the trainer.
"""

import ctypes
import json
import os
import select
import signal
import socket
from pathlib import Path

from . import folders, namespaces, tiers, zygote
from .settings import Settings

PR_SET_CHILD_SUBREAPER = 36


def main(control_fd: int, settings_text: str) -> None:
    """Run a sandbox until the trainer ends or closes the control socket, or the fork server dies.

    Args:
        control_fd: A SOCK_SEQPACKET socket to the trainer.
        settings_text: `Settings` as JSON.
    """
    settings = Settings.from_json(settings_text)
    # To end the sandbox, end the trainer or close the sandbox; killing the guardian would leave files behind.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    try:
        trainer = os.pidfd_open(settings.trainer)
        if os.getppid() == settings.trainer:
            _run(control, trainer, settings)
    except tiers.Unavailable as missing:
        control.send(json.dumps({"unavailable": str(missing)}).encode())
    except ProcessLookupError:
        # The trainer had ended before we began.
        pass
    finally:
        _reap_all()
        folders.remove(settings.folder)


def _run(control: socket.socket, trainer: int, settings: Settings) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    Path(tiers.mount_point(settings)).mkdir()
    tier = tiers.choose(settings)
    if tier.namespaces:
        namespaces.leave_pids()
    guardian = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(trainer)
        zygote.main(control, settings, tier, guardian)
    server = os.pidfd_open(pid)
    try:
        control.send(json.dumps({"zygote": pid}).encode())
        control.close()
        poll = select.poll()
        poll.register(trainer, select.POLLIN)
        poll.register(server, select.POLLIN)
        poll.poll()
    finally:
        signal.pidfd_send_signal(server, signal.SIGKILL)


def _reap_all() -> None:
    """Wait for the fork server and all sessions: they die with it, and we inherit the orphans."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return

"""The fork server: one clean process with the image libraries loaded, forked once for each session.

It keeps a few sessions forked and confined in advance. It never holds anything of the trainer's, and does
not run model code itself.
"""

import fcntl
import functools
import gc
import json
import os
import platform
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from . import confine, descriptors, folders, forking, landlock, namespaces, seccomp, tiers, wire
from .settings import Settings

CHANNEL = 10
"""Descriptor of a session's channel to the trainer."""
OUTSIDE = "/etc/passwd"
"""A file that exists everywhere and that sessions must not read."""
CALM_SECONDS = 0.01
"""Idle sessions are replaced once there has been no request for this long: bursts of requests go first."""
STARVED_SECONDS = 1.0
"""Until the next attempt if the machine could not fork."""
FIRST_WARM = 8
"""Idle sessions at most, until more have lived at the same time; ours: each takes 6 ms of a processor."""
FIRST_RULE = 200
"""Lowest descriptor of the readable paths that are kept open for the sessions' rules."""
OPEN_FILES = 8192
"""Limit for the fork server: one per session, three more per idle one."""
NO_CONFINEMENT = 97
"""Exit status of a session that could not be confined."""

MakeRunner = Callable[[str], Any]
"""Takes a workspace, returns its `runner.Runner`."""


class _TrainerGone(Exception):
    """The control socket was closed."""


@dataclass(slots=True)
class _Idle:
    """A session that is waiting to be used."""

    place: dict[str, Any]
    fds: tuple[int, int, int]
    """Its pidfd, the trainer's end of its channel, its output file."""


def main(control: socket.socket, settings: Settings, tier: tiers.Tier, guardian: int) -> NoReturn:
    """Serve requests for sessions until the trainer goes away; ends the process.

    Args:
        control: A SOCK_SEQPACKET socket to the trainer.
        settings: Settings of the sandbox.
        tier: The protection to enforce.
        guardian: Process id of the parent, as the parent sees itself.
    """
    try:
        confine.die_with_parent(signal.SIGKILL)
        # In a separate process namespace, the parent shows up as 0.
        if os.getppid() not in (0, guardian):
            os._exit(0)
        _Server(control, settings, tier).serve()
    except (_TrainerGone, BrokenPipeError, ConnectionResetError):
        os._exit(0)
    except BaseException:  # noqa: BLE001 - goes to the log; the parent's code must not run on
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


class _Server:
    def __init__(self, control: socket.socket, settings: Settings, tier: tiers.Tier) -> None:
        self.control = control
        self.settings = settings
        self.tier = tier
        gc.disable()
        with forking.hooks_run_once():
            self.make_runner = _load(settings)
        threads = len(list(Path("/proc/self/task").iterdir()))
        if threads != 1:
            raise RuntimeError(f"the fork server has {threads} threads, and only one may fork")
        confine.be_first_to_go()
        base_memory = confine.address_space()
        if tier.namespaces:
            namespaces.leave_the_rest(tiers.view(settings), tiers.mount_point(settings))
        confine.drop_bounding_set()
        self.confinement = confine.Confinement(
            landlock_abi=tier.landlock,
            rules=_rules() if tier.landlock else (),
            filter=seccomp.Filter(platform.machine()) if tier.seccomp else None,
            memory=settings.memory,
            cpu_seconds=settings.cpu_seconds,
            file_bytes=settings.file_bytes,
            open_files=settings.open_files,
            base_memory=base_memory,
        )
        self.pid = os.getpid()
        self.count = 0
        """Number of sessions made; names their folders and users."""
        self.broken = False
        """Whether a session could not be confined: from then on, none is made in advance."""
        self.calm = 0.0
        """When the last burst of requests will be over, in `time.monotonic` time."""
        self.idle: deque[_Idle] = deque()
        self.most = 0
        """Largest number of sessions alive at once, including those waiting to be used again."""
        self.children: dict[int, int] = {}
        """Pidfd -> pid of each living child."""
        self.removers: dict[int, int] = {}
        """Pidfd -> request number of each child that removes a folder."""
        self.poll = select.poll()
        self.poll.register(control, select.POLLIN)

    def serve(self) -> NoReturn:
        """Answer requests, reap children, keep the pool full."""
        # Imported objects stay: keep the garbage collector away from them, here and in the sessions.
        gc.freeze()
        gc.enable()
        facts = {"ready": True, "tier": asdict(self.tier), "uid": os.getuid()}
        self.control.send(json.dumps(facts).encode())
        while True:
            lacking = len(self.idle) < self._wanted() and not self.broken
            calm = max(0.0, self.calm - time.monotonic())
            events = self.poll.poll(calm * 1000 if lacking else None)
            for fd, _ in events:
                if fd == self.control.fileno():
                    self._answer()
                else:
                    self._reap(fd)
            if not events and lacking:
                self._fork_ahead()

    def _answer(self) -> None:
        message = self.control.recv(1 << 16)
        if not message:
            raise _TrainerGone
        request = json.loads(message)
        number = request["number"]
        if "ping" in request:
            self.control.send(json.dumps({"number": number, "children": len(self.children)}).encode())
            return
        if "remove" in request:
            self._remove(number, request["remove"])
            return
        self.calm = time.monotonic() + CALM_SECONDS
        place = request["place"]
        try:
            session = self.idle.popleft() if place is None and self.idle else self._fork(place)
        except OSError as error:
            self.control.send(json.dumps({"number": number, "failed": str(error)}).encode())
            return
        self.most = max(self.most, self._lively())
        answer = {"number": number, "place": session.place, "fresh": place is None}
        socket.send_fds(self.control, [json.dumps(answer).encode()], session.fds)
        # Keep the pidfd: it reports the end of the session.
        for fd in session.fds[1:]:
            os.close(fd)

    def _lively(self) -> int:
        """Sessions that are not idle here."""
        return len(self.children) - len(self.idle) - len(self.removers)

    def _wanted(self) -> int:
        """Idle sessions wanted: the peak number of sessions less those alive now, within the limit set."""
        return min(self.settings.warm, max(FIRST_WARM, self.most - self._lively()))

    def _remove(self, number: int, folder: str) -> None:
        """Remove a folder: directly if that is quick, else in a child, since others wait for this process."""
        if folders.quick_to_remove(folder):
            self.control.send(json.dumps(_removed(number, folder)).encode())
            return
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                confine.die_with_parent(signal.SIGKILL)
                self.control.send(json.dumps(_removed(number, folder)).encode())
                status = 0
            finally:
                os._exit(status)
        pidfd = os.pidfd_open(pid)
        self.children[pidfd] = pid
        self.removers[pidfd] = number
        self.poll.register(pidfd, select.POLLIN)

    def _fork_ahead(self) -> None:
        try:
            self.idle.append(self._fork(None))
        except OSError:
            # No process or memory available right now: a request will report that, or succeed later.
            self.calm = time.monotonic() + STARVED_SECONDS

    def _fork(self, place: dict[str, Any] | None) -> _Idle:
        """Fork one session, in a new folder or in that of a session that ended.

        Raises:
            OSError: If the machine cannot fork.
        """
        if place is None:
            self.count += 1
            uid = tiers.FIRST_UID + self.count % tiers.UIDS if self.tier.private_uid else None
            place = {"folder": f"{self.settings.folder}/s{self.count:06d}", "uid": uid}
            folders.make_session(place["folder"], uid)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            output = descriptors.output_file(self.settings.output_bytes)
            try:
                pid = os.fork()
                if pid == 0:
                    self._become_session(place, theirs.fileno(), output)
                pidfd = os.pidfd_open(pid)
            except BaseException:
                os.close(output)
                raise
            self.children[pidfd] = pid
            self.poll.register(pidfd, select.POLLIN)
            return _Idle(place, (pidfd, ours.detach(), output))

    def _reap(self, pidfd: int) -> None:
        self.poll.unregister(pidfd)
        _, status = os.waitpid(self.children.pop(pidfd), 0)
        number = self.removers.pop(pidfd, None)
        if number is not None and status:
            answer = {"number": number, "failed": "the process that removed it was killed"}
            self.control.send(json.dumps(answer).encode())
        for session in [idle for idle in self.idle if idle.fds[0] == pidfd]:
            # It has run no model code, so the status is our own. Any other status means that memory was
            # short; the next request gets another session.
            self.broken |= os.waitstatus_to_exitcode(status) == NO_CONFINEMENT
            self.idle.remove(session)
            for fd in session.fds[1:]:
                os.close(fd)
            folders.remove(session.place["folder"])
        os.close(pidfd)

    def _become_session(self, place: dict[str, Any], channel: int, output: int) -> NoReturn:
        """Turn the freshly forked process into a confined session; never returns to the server's code."""
        status = NO_CONFINEMENT
        try:
            confine.die_with_parent(signal.SIGKILL)
            if os.getppid() == self.pid:
                runner = self._confined(place, channel, output)
                status = 0
                runner.loop(CHANNEL)
        except (EOFError, ConnectionError):
            # The trainer has closed the channel: the normal end of a session.
            pass
        finally:
            # A session must not fall back into the fork server's loop, whatever happened.
            os._exit(status)

    def _confined(self, place: dict[str, Any], channel: int, output: int) -> Any:
        """Confine this process and return its runner; from here on the process can do no harm."""
        descriptors.arrange(
            channel=(channel, CHANNEL), output=output, keep=[rule.fd for rule in self.confinement.rules]
        )
        try:
            os.umask(0o022)
            workspace = f"{place['folder']}/{folders.WORKSPACE}"
            os.chdir(workspace)
            runner = self.make_runner(workspace)
            confine.confine(
                self.confinement,
                writable=workspace,
                readable=f"{place['folder']}/{folders.INPUTS}",
                uid=place["uid"],
            )
            confine.self_test(self.confinement, outside=OUTSIDE, files=self.tier.files)
        except (OSError, RuntimeError) as error:
            wire.send(CHANNEL, {"failed": str(error)})
            os._exit(NO_CONFINEMENT)
        runner.prepare()
        wire.send(CHANNEL, {"ready": True})
        return runner


def _removed(number: int, folder: str) -> dict[str, Any]:
    """Remove a folder, and return the answer to the request."""
    try:
        folders.remove(folder)
    except OSError as error:
        return {"number": number, "failed": str(error)}
    return {"number": number}


def _rules() -> tuple[landlock.Rule, ...]:
    """What every session may read, opened once."""
    access = dict.fromkeys((*tiers.runtime(), *tiers.DEVICES), landlock.READ)
    access[os.devnull] = landlock.WRITE
    rules = [landlock.rule(path, rights) for path, rights in access.items()]
    # Away from the numbers used for a session's own descriptors.
    moved = tuple(replace(rule, fd=fcntl.fcntl(rule.fd, fcntl.F_DUPFD_CLOEXEC, FIRST_RULE)) for rule in rules)
    for rule in rules:
        os.close(rule.fd)
    return moved


def _load(settings: Settings) -> MakeRunner:
    """Import the libraries, hook them, and trigger lazy loading, so that sessions share the pages."""
    import io
    import tempfile

    import cv2
    import numpy as np
    import PIL.ImageDraw
    import PIL.ImageEnhance
    import PIL.ImageFilter
    import PIL.ImageFont
    import PIL.ImageOps
    from matplotlib import artist

    # When imported, matplotlib writes tables of settings into its docstrings, which takes a third of the
    # import time, in every sandbox. Sessions still get the tables from `kwdoc`.
    table, artist.kwdoc = artist.kwdoc, lambda _: ""
    import matplotlib.pyplot as plt

    artist.kwdoc = table

    # Import the runner before the hooks: it keeps some original functions.
    from . import hooked, runner

    cv2.setNumThreads(0)
    PIL.Image.init()
    np.random.seed(0)
    picture = np.zeros((32, 32, 3), np.uint8)
    for kind in (".png", ".jpg"):
        cv2.imdecode(cv2.imencode(kind, picture)[1], cv2.IMREAD_COLOR)
    cv2.cvtColor(cv2.resize(picture, (16, 16)), cv2.COLOR_BGR2RGB)
    for name in ("PNG", "JPEG"):
        file = io.BytesIO()
        PIL.Image.fromarray(picture).save(file, name)
        PIL.Image.open(file).load()
    tracker = hooked.install()
    figure = plt.figure(figsize=(1, 1))
    figure.gca().set_title("warm")
    figure.savefig(io.BytesIO())  # `plt.savefig` would draw it twice
    plt.close("all")
    tempfile.tempdir = None
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, OPEN_FILES), hard))
    return functools.partial(runner.Runner, tracker=tracker, settings=settings)

"""All layers together: how a freshly forked process becomes a session that cannot get out.

Nothing degrades silently: a step that fails raises, and the caller ends the process.
"""

import contextlib
import ctypes
import errno
import functools
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import landlock, linux, seccomp

NICE = 5
"""Sessions yield the CPU to the trainer. Ours."""
PENDING_SIGNALS = 64
"""Queued signals per session. Ours."""

_CAPABILITY_VERSION_3 = 0x20080522
_THIS_PROCESS = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
_NO_CAPABILITIES = bytes(24)
_held = ctypes.create_string_buffer(len(_NO_CAPABILITIES))
"""Buffer for the kernel's answer; created in the fork server, because creating its type is slow."""
_CAPABILITIES = 64
"""More than any kernel has; the loop stops at the first unknown one."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What all sessions have in common; created once, in the fork server."""

    landlock_abi: int
    """Version of Landlock to use; 0 for none."""
    rules: tuple[landlock.Rule, ...]
    """What every session may read: the runtime and the devices."""
    filter: seccomp.Filter | None
    """None for no filter."""
    memory: int
    """Bytes of address space beyond those of the fork server."""
    cpu_seconds: int
    """CPU seconds over the whole life of a session."""
    file_bytes: int
    """Largest file that it may write."""
    open_files: int
    """Descriptors that it may hold."""
    base_memory: int
    """Bytes of address space of the fork server, from `address_space`."""


def address_space() -> int:
    """Bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def be_first_to_go() -> None:
    """Make this process, and all that it forks, the kernel's first victims when memory runs out."""
    Path("/proc/self/oom_score_adj").write_text("1000")


def drop_bounding_set() -> None:
    """Keep capabilities from being regained by executing a program; this process keeps those that it holds.

    For the fork server: its children inherit this, so they need not spend the time. A process without the
    right to do this is protected by no_new_privs instead.

    Raises:
        OSError: If the kernel refuses for another reason.
    """
    for capability in range(_CAPABILITIES):
        try:
            linux.prctl(linux.PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EPERM):
                return
            raise


def die_with_parent(signum: signal.Signals) -> None:
    """Ask the kernel to send `signum` to this process when its parent ends."""
    linux.prctl(linux.PR_SET_PDEATHSIG, signum)


def confine(how: Confinement, *, writable: str, readable: str, uid: int | None) -> None:
    """Confine this process for good, and close the descriptors of the rules.

    Args:
        how: The layers and limits.
        writable: The workspace.
        readable: The folder of the input pictures.
        uid: User and group to become; None to stay the same user. Needs CAP_SETUID and CAP_SETGID.

    Raises:
        OSError: If a step fails, or the parent has ended in the meantime.
    """
    parent = os.getppid()
    os.nice(NICE)
    for limit, value in (
        (resource.RLIMIT_AS, how.base_memory + how.memory),
        (resource.RLIMIT_CPU, how.cpu_seconds),
        (resource.RLIMIT_FSIZE, how.file_bytes),
        (resource.RLIMIT_NOFILE, how.open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, PENDING_SIGNALS),
    ):
        resource.setrlimit(limit, (value, value))
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    linux.syscall("capset", _THIS_PROCESS, _NO_CAPABILITIES)
    # The process stays "dumpable", unless its user changed: the trainer can then see its open files under
    # /proc, and count those that are in no folder. It writes no core, and other sessions have neither /proc
    # nor ptrace. The death signal comes last: a change of user resets it. By then the parent may be gone.
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        raise ProcessLookupError(errno.ESRCH, "the parent has ended")
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    if how.landlock_abi:
        own = [landlock.rule(writable, landlock.WRITE), landlock.rule(readable, landlock.READ)]
        landlock.restrict([*how.rules, *own], how.landlock_abi)
        for rule in own:
            os.close(rule.fd)
    for rule in how.rules:
        os.close(rule.fd)
    if how.filter is not None:
        how.filter.load(os.getpid())


def self_test(how: Confinement, *, outside: str, files: bool) -> None:
    """Try what the layers forbid, in a session that has just been confined and is in its workspace.

    Args:
        how: The layers; only what they promise is tested.
        outside: A file that exists on the machine and that sessions must not read.
        files: Whether outside files must be out of reach, through Landlock or namespaces.

    Raises:
        RuntimeError: If something forbidden was possible; the caller must end the process.
    """
    linux.syscall("capget", _THIS_PROCESS, _held)
    if _held.raw != _NO_CAPABILITIES:
        raise RuntimeError("the session is not confined: it holds capabilities")
    if files:
        away = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.EROFS)
        _must_fail("read a file outside", lambda: os.close(os.open(outside, os.O_RDONLY)), away)
        for folder in ("..", "/tmp"):
            probe = f"{folder}/.self-test-{os.getpid()}"
            _must_fail(f"make a file in {folder}", functools.partial(_make_and_remove, probe), away)
    if how.filter is not None:
        refused = (errno.EPERM,)
        _must_fail("make a socket", _make_socket, refused)
        _must_fail("signal its parent", lambda: os.kill(os.getppid(), 0), refused)
        # Without a filter this always succeeds, whoever the parent is.
        _must_fail("signal its group", lambda: os.kill(0, 0), refused)
        _must_fail("fork", _fork, (errno.EAGAIN,))


def _must_fail(what: str, action: Callable[[], None], expected: tuple[int, ...]) -> None:
    try:
        action()
    except OSError as error:
        if error.errno in expected:
            return
        raise RuntimeError(f"the session may not be confined: to {what} failed by {error}") from error
    raise RuntimeError(f"the session is not confined: it could {what}")


def _make_and_remove(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with contextlib.suppress(OSError):  # it could be created, which matters more than the empty file
        Path(path).unlink()


def _make_socket() -> None:
    os.close(linux.syscall("socket", socket.AF_INET, socket.SOCK_STREAM, 0))


def _fork() -> None:
    """Fork without telling Python; a child that should not exist exits at once, and its parent soon after."""
    if linux.syscall("clone", signal.SIGCHLD) == 0:
        os._exit(0)

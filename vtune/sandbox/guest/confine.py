"""What the kernel takes away from a session. Linux, by ctypes alone.

The fork server gives up the network once for all sessions; each session then limits its resources, drops
every capability and loads a seccomp filter that keeps it a single process.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
from pathlib import Path
from typing import Any

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
CLONE_THREAD = 0x00010000
PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FORBIDDEN = {
    # socket, fork, vfork, execve, execveat, ptrace, process_vm_readv, process_vm_writev, rt_sigqueueinfo,
    # tkill, unshare, setns, rt_tgsigqueueinfo, pidfd_send_signal, io_uring_setup, pidfd_getfd
    "x86_64": (41, 57, 58, 59, 322, 101, 310, 311, 129, 200, 272, 308, 297, 424, 425, 438),
    # the same without fork and vfork, which the architecture does not have
    "aarch64": (198, 221, 281, 117, 270, 271, 138, 130, 97, 268, 240, 424, 425, 438),
}
CLONE = {"x86_64": 56, "aarch64": 220}
SIGNALS = {"x86_64": (62, 234), "aarch64": (129, 131)}
"""kill and tgkill."""
CLONE3 = 435
X32_BIT = 0x40000000

LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ARCH_OFFSET, NUMBER_OFFSET, ARGUMENT_OFFSET = 4, 0, 16
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def die_with_parent(signum: signal.Signals) -> None:
    """Ask the kernel to send `signum` to this process when its parent ends."""
    _prctl(PR_SET_PDEATHSIG, signum)


def leave_network() -> str:
    """Move this process, and all that it forks, into an empty network namespace.

    Must run while the process has one thread.

    Returns:
        Empty when it worked, else why the kernel refused.
    """
    libc = _libc()
    uid, gid = os.geteuid(), os.getegid()
    # Who is not root may do it inside a user namespace of their own.
    if libc.unshare(CLONE_NEWNET if uid == 0 else CLONE_NEWUSER | CLONE_NEWNET) != 0:
        return f"unshare: {os.strerror(ctypes.get_errno())}"
    if uid != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    return ""


def can_filter() -> bool:
    """Whether this machine has a system call table here."""
    return platform.machine() in AUDIT_ARCH


def confine(*, memory: int, cpu_seconds: int, file_bytes: int, open_files: int) -> None:
    """Confine this process for good.

    Args:
        memory: Bytes of address space beyond what it has now.
        cpu_seconds: CPU seconds of its whole life.
        file_bytes: Largest file that it may write.
        open_files: Descriptors that it may hold.

    Raises:
        OSError: If the kernel refuses a step; the caller must then end the process.
    """
    os.nice(5)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    for limit, value in (
        (resource.RLIMIT_AS, pages * resource.getpagesize() + memory),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    _drop_capabilities()
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    if can_filter():
        _load_filter(filter_program(platform.machine(), os.getpid()))


def filter_program(machine: str, pid: int) -> bytes:
    """The seccomp filter: no sockets, no other process, no signal to anybody but `pid` itself.

    Threads stay possible (numpy, OpenCV and matplotlib may start some); they end with the process.
    """
    refuse = _step(RETURN, ERRNO | errno.EPERM)
    allow = _step(RETURN, ALLOW)
    first_argument = _step(LOAD, ARGUMENT_OFFSET)
    program = [
        _step(LOAD, ARCH_OFFSET),
        _step(JUMP_EQUAL, AUDIT_ARCH[machine], 1, 0),
        _step(RETURN, KILL),
        _step(LOAD, NUMBER_OFFSET),
        _step(JUMP_AT_LEAST, X32_BIT, 0, 1),
        refuse,
    ]
    for number in FORBIDDEN[machine]:
        program += [_step(JUMP_EQUAL, number, 0, 1), refuse]
    # The C library falls back to clone, whose flags a filter can read, when clone3 does not exist.
    program += [_step(JUMP_EQUAL, CLONE3, 0, 1), _step(RETURN, ERRNO | errno.ENOSYS)]
    program += [_step(JUMP_EQUAL, CLONE[machine], 0, 4), first_argument]
    program += [_step(JUMP_BITS, CLONE_THREAD, 0, 1), allow, refuse]
    for number in SIGNALS[machine]:
        program += [_step(JUMP_EQUAL, number, 0, 4), first_argument]
        program += [_step(JUMP_EQUAL, pid, 0, 1), allow, refuse]
    return b"".join([*program, allow])


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def _load_filter(program: bytes) -> None:
    steps = ctypes.create_string_buffer(program, len(program))
    header = _Program(len(program) // 8, ctypes.cast(steps, ctypes.c_void_p))
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(header))


def _step(code: int, value: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jump_true, jump_false, value)


def _drop_capabilities() -> None:
    """Give up all capabilities, so that even root cannot write a read-only file."""
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    nothing = bytes(24)
    if _libc().capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _prctl(option: int, value: int, pointer: int = 0) -> None:
    arguments = [ctypes.c_ulong(part) for part in (value, pointer, 0, 0)]
    if _libc().prctl(ctypes.c_int(option), *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)

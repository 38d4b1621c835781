"""The system call filter of a session: whatever is not listed here is refused.

It keeps a session a single process with a single thread and no sockets, which can signal only itself and
cannot change file metadata, which Landlock does not cover. It allows everything that image libraries need.

The filter is a binary search over ranges of call numbers with the same answer: this is fast to run, and fast
for the kernel to verify on loading, which every session has to wait for.
"""

import ctypes
import errno
import itertools
import struct
from collections.abc import Iterable
from typing import NamedTuple

from . import linux
from .syscalls import TABLES

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's identifier of the architecture in a filter (linux/audit.h)."""
X32_BIT = 0x40000000
"""Marks call numbers of the x32 interface, a second way into an x86_64 kernel."""

ALLOW, KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000

_FILES = """
    read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range dup
    dup2 dup3 pipe pipe2 poll ppoll select pselect6 epoll_create1 epoll_ctl epoll_wait epoll_pwait
    eventfd2 sendfile copy_file_range stat lstat fstat newfstatat statx access faccessat faccessat2
    readlink readlinkat getcwd chdir fchdir umask statfs fstatfs getdents getdents64 creat rename renameat
    mkdir mkdirat rmdir unlink unlinkat fsync fdatasync ftruncate fadvise64
"""
_MEMORY = """
    mmap munmap mremap mprotect madvise msync brk futex set_robust_list membarrier rseq set_tid_address
    getrandom
"""
_TIME_AND_SIGNALS = """
    rt_sigprocmask rt_sigreturn sigaltstack restart_syscall pause nanosleep clock_nanosleep
    getitimer clock_gettime clock_getres gettimeofday time times sched_yield exit
    exit_group
"""
_FACTS = """
    getpid gettid getppid getpgrp getuid geteuid getgid getegid getgroups getresuid
    getresgid getrlimit getrusage sched_get_priority_max sched_get_priority_min getcpu uname sysinfo capget
"""
_OF_A_PROCESS = {
    "getpgid": 0,
    "getsid": 0,
    "sched_getparam": 0,
    "sched_getscheduler": 0,
    "sched_getaffinity": 0,
    "getpriority": 1,
}
"""Calls about the process that an argument names -> its index; only the session itself is allowed."""
_PRETENDED = """
    chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat
"""
"""Reported as successful but not done, so that `shutil.copy` and the like continue."""
_ATTRIBUTES = """
    setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr
    lremovexattr fremovexattr
"""
"""Answered as on a file system without extended attributes."""

_FCNTL = (0, 1, 2, 3, 4, 1030, 1032)
"""Duplicate, descriptor and status flags, pipe size; not F_SETOWN or F_SETSIG, which send signals."""
_FCNTL_LOCKS = (5, 6, 7, 36, 37, 38)
"""F_GETLK, F_SETLK, F_SETLKW, and the same for open file descriptions."""
_KEPT_SIGNALS = (14, 18)
"""SIGALRM, which ends a call, and SIGCONT, which wakes the session: a handler set by the code would run
between that and the next request."""
_ITIMER_REAL = 0
"""The timer of the soft limit; the other timers would keep running into the next call."""
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""
_PRCTL = (3, 15, 16, 21, 23, 0x53564D41)
"""Dumpable?, set name, get name, seccomp?, capability bound?, name a memory area (the allocator does)."""
_ARCH_PRCTL = (0x1003, 0x1004)
"""ARCH_GET_FS, ARCH_GET_GS."""
_AF_UNIX = 1
_RENAME = (0, 1, 2)
"""Plain, no replace, exchange; not the whiteout, which would leave a device file."""
_O_TRUNC = 0o1000
_O_ACCMODE = 3
_O_WRONLY, _O_RDWR = 1, 2

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _JUMP, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x05, 0x54, 0x06
_NUMBER_OFFSET, _ARCH_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16
_LONGEST_JUMP = 255


class _Step(NamedTuple):
    """One instruction of the kernel's packet filter machine (linux/filter.h)."""

    code: int
    value: int | None
    """None stands for the pid of the process that loads the filter."""
    if_true: int = 0
    if_false: int = 0
    """Steps to skip."""


_Steps = tuple[_Step, ...]


def _refuse(number: int) -> _Steps:
    return (_Step(_RETURN, _ERRNO | number),)


_ALLOWED: _Steps = (_Step(_RETURN, ALLOW),)
_REFUSED = _refuse(errno.EPERM)


def _argument(index: int, *, upper_half: bool = False) -> _Step:
    # Both machines are little endian.
    return _Step(_LOAD, _ARGUMENTS_OFFSET + 8 * index + 4 * upper_half)


def _one_of(index: int, values: Iterable[int | None], otherwise: _Steps = _REFUSED) -> _Steps:
    """Allow these values of an `int` argument; the kernel ignores its upper half."""
    tests = [(_Step(_EQUAL, value, 0, 1), *_ALLOWED) for value in values]
    return (_argument(index), *itertools.chain.from_iterable(tests), *otherwise)


def _null(index: int) -> _Steps:
    """Allow the call only if that pointer is null."""
    test = _Step(_EQUAL, 0, 1, 0)
    halves = [(_argument(index, upper_half=upper), test, *_REFUSED) for upper in (False, True)]
    return (*halves[0], *halves[1], *_ALLOWED)


def _none_of(values: Iterable[int], number: int) -> _Steps:
    """Refuse these values of the loaded argument with a specific error."""
    return tuple(step for value in values for step in (_Step(_EQUAL, value, 0, 1), *_refuse(number)))


def _handler() -> _Steps:
    """Allow changing the handler of any signal except `_KEPT_SIGNALS`; querying is always allowed."""
    count = len(_KEPT_SIGNALS)
    # Each test jumps over the later ones, and over the step that allows all other signals.
    jumps = [_Step(_EQUAL, number, count - at, 0) for at, number in enumerate(_KEPT_SIGNALS)]
    return (_argument(0), *jumps, *_ALLOWED, *_null(1))


def _open(flags: int) -> _Steps:
    """Refuse to truncate a file not opened for writing, which old versions of Landlock let through."""
    return (
        _argument(flags),
        _Step(_ANY_BIT, _O_TRUNC, 1, 0),
        *_ALLOWED,
        _Step(_AND, _O_ACCMODE),
        _Step(_EQUAL, _O_WRONLY, 1, 0),
        _Step(_EQUAL, _O_RDWR, 0, 1),
        *_ALLOWED,
        *_REFUSED,
    )


def _policy() -> dict[str, _Steps]:
    """The answer to each call, by name; on a machine that lacks a call, its entry is ignored."""
    policy = dict.fromkeys((_FILES + _MEMORY + _TIME_AND_SIGNALS + _FACTS).split(), _ALLOWED)
    policy |= dict.fromkeys(_PRETENDED.split(), _refuse(0))
    policy |= dict.fromkeys(_ATTRIBUTES.split(), _refuse(errno.ENOTSUP))
    policy |= {name: _one_of(index, [0, None]) for name, index in _OF_A_PROCESS.items()}
    return policy | {
        "open": _open(1),
        "openat": _open(2),
        # Arguments behind pointers cannot be checked: report the call as missing, so libc uses the older one.
        "openat2": _refuse(errno.ENOSYS),
        "clone3": _refuse(errno.ENOSYS),
        "clone": _refuse(errno.EAGAIN),
        "kill": _one_of(0, [None]),
        "tgkill": _one_of(0, [None]),
        # Read only, and only its own limits.
        "prlimit64": (*_null(2)[:-1], *_one_of(0, [0, None])),
        # No locks, since fonts and libraries are shared. Missing rather than refused: a library whose lock
        # is refused may wait for it to become free.
        "flock": _refuse(errno.ENOSYS),
        "fcntl": _one_of(1, _FCNTL, (*_none_of(_FCNTL_LOCKS, errno.ENOSYS), *_REFUSED)),
        "rt_sigaction": _handler(),
        "setitimer": _one_of(0, [_ITIMER_REAL]),
        "ioctl": _one_of(1, _IOCTL, _refuse(errno.ENOTTY)),
        "prctl": _one_of(0, _PRCTL),
        "arch_prctl": _one_of(0, _ARCH_PRCTL),
        "socketpair": _one_of(0, [_AF_UNIX]),
        "sendto": _null(4),
        "recvfrom": _null(4),
        "renameat2": _one_of(4, _RENAME),
        # It can take gigabytes of disk in no time, long before the quota is checked.
        "fallocate": _refuse(errno.EOPNOTSUPP),
    }


def _search(ranges: list[tuple[int, _Steps]]) -> _Steps:
    """Run the steps of the last range that does not start above the loaded number."""
    if len(ranges) == 1:
        return ranges[0][1]
    half = len(ranges) // 2
    lower, upper = _search(ranges[:half]), _search(ranges[half:])
    begin = ranges[half][0]
    if len(lower) <= _LONGEST_JUMP:
        return (_Step(_AT_LEAST, begin, len(lower), 0), *lower, *upper)
    return (_Step(_AT_LEAST, begin, 0, 1), _Step(_JUMP, len(lower)), *lower, *upper)


def _assemble(machine: str) -> _Steps:
    numbers = TABLES[machine]
    answers = {numbers[name]: steps for name, steps in _policy().items() if name in numbers}
    ranges: list[tuple[int, _Steps]] = []
    for number in range(max(answers) + 2):
        steps = answers.get(number, _REFUSED)
        if not ranges or ranges[-1][1] != steps:
            ranges.append((number, steps))
    return (
        _Step(_LOAD, _ARCH_OFFSET),
        _Step(_EQUAL, AUDIT_ARCH[machine], 1, 0),
        _Step(_RETURN, KILL),
        _Step(_LOAD, _NUMBER_OFFSET),
        _Step(_AT_LEAST, X32_BIT, 0, 1),
        _Step(_RETURN, KILL),
        *_search(ranges),
    )


def supported(machine: str) -> bool:
    """Whether there is a filter for a machine, by its name in `uname`."""
    return machine in TABLES


class Filter:
    """The filter for one machine, complete except for the pid of the session."""

    def __init__(self, machine: str) -> None:
        steps = _assemble(machine)
        packed = b"".join(
            struct.pack("=HBBI", step.code, step.if_true, step.if_false, step.value or 0) for step in steps
        )
        self._pids = [8 * index + 4 for index, step in enumerate(steps) if step.value is None]
        # Laid out as the kernel reads it, so a session only has to fill in its pid.
        self._steps = ctypes.create_string_buffer(packed, len(packed))
        self._header = ctypes.create_string_buffer(
            struct.pack("@HP", len(steps), ctypes.addressof(self._steps))
        )

    def program(self, pid: int) -> bytes:
        """The instructions, 8 bytes each, for the session that sees itself as `pid`."""
        self._fill_in(pid)
        return self._steps.raw

    def load(self, pid: int) -> None:
        """Filter the calls of this process, whose pid is `pid`, permanently. It must have set no_new_privs.

        Raises:
            OSError: If the kernel refuses.
        """
        self._fill_in(pid)
        linux.prctl(linux.PR_SET_SECCOMP, linux.SECCOMP_MODE_FILTER, ctypes.addressof(self._header))

    def _fill_in(self, pid: int) -> None:
        for offset in self._pids:
            struct.pack_into("=I", self._steps, offset, pid)

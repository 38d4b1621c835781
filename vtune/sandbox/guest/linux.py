"""System calls by name, with OSError when the kernel refuses. The only place that calls the C library."""

import ctypes
import errno
import os
import platform
from typing import Any

from .syscalls import TABLES

PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2

_library = ctypes.CDLL(None, use_errno=True)
_trim = getattr(_library, "malloc_trim", None)
"""Only in glibc."""
_NUMBERS = TABLES.get(platform.machine(), {})
_call = _library.syscall
_call.argtypes = [ctypes.c_long, *[ctypes.c_void_p] * 6]
_call.restype = ctypes.c_long


def syscall(name: str, *arguments: int | bytes | ctypes.Array[Any] | None) -> int:
    """Make a system call.

    Args:
        name: Its name in `syscalls.TABLES`.
        arguments: At most six; bytes and arrays are passed by address, and only arrays may be written to.

    Returns:
        What the kernel returned, never negative.

    Raises:
        OSError: If the kernel refuses, or the call is not in the machine's table.
    """
    if name not in _NUMBERS:
        raise OSError(errno.ENOSYS, f"{name}: no such system call on {platform.machine()}")
    result: int = _call(_NUMBERS[name], *arguments, *[None] * (6 - len(arguments)))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int, pointer: int = 0) -> None:
    """Change an attribute of this process; the other arguments are 0, as most options demand.

    Raises:
        OSError: If the kernel refuses.
    """
    syscall("prctl", option, value, pointer)


def give_back_memory() -> None:
    """Return unused memory to the system, so that it is zeroed before the next use."""
    if _trim is not None:
        _trim(0)

"""Landlock: which files a session may reach. Needs no privilege, and cannot be undone.

It does not cover, so that the seccomp filter must: metadata (chmod, chown, times), `stat`, sockets other than
TCP, and, before version 3 of its interface, truncation.

Source: linux/landlock.h and the kernel's userspace-api/landlock document.
"""

import os
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from . import linux

EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
REMOVE_DIR = 1 << 4
REMOVE_FILE = 1 << 5
MAKE_DIR = 1 << 7
MAKE_REG = 1 << 8
REFER = 1 << 13
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15

READ = READ_FILE | READ_DIR
"""Files and folders may be read."""
WRITE = READ | WRITE_FILE | TRUNCATE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | REFER
"""A workspace: also write, create, remove and move. No programs, links, pipes, devices or sockets."""

_ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_FIRST_VERSION = (1 << 13) - 1
_TCP = 0b11
"""Bind and connect."""
_SCOPES = 0b11
"""Abstract Unix sockets and signals."""
_GET_VERSION = 1
_PATH_BENEATH = 1
_LOG_NOTHING = 1
"""Keep a session's refusals out of the machine's audit log, which it could flood."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is allowed at a place and below it."""

    fd: int
    """An O_PATH descriptor of the place; the creator of the rule closes it."""
    access: int
    """Rights, such as `READ` and `WRITE`."""


def abi() -> int:
    """The version of the kernel's interface; 0 if Landlock is missing or disabled."""
    try:
        return linux.syscall("landlock_create_ruleset", None, 0, _GET_VERSION)
    except OSError:
        return 0


def rule(path: str, access: int) -> Rule:
    """Open a place for a rule; for a file, `access` is reduced to the rights that apply to files.

    Raises:
        OSError: If there is no such place.
    """
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        access &= _ON_FILES
    return Rule(fd, access)


def restrict(rules: Sequence[Rule], abi: int) -> None:
    """Permanently deny this process everything that `abi` covers and no rule grants.

    TCP (from version 4), and signals and abstract sockets to the outside (from version 6) are never granted.
    The caller must have set no_new_privs.

    Raises:
        OSError: If the kernel refuses.
    """
    files = _FIRST_VERSION
    for right, since in ((REFER, 2), (TRUNCATE, 3), (IOCTL_DEV, 5)):
        if abi >= since:
            files |= right
    # Each field was added in some version, and older kernels reject a longer struct.
    handled = [files, *[_TCP] * (abi >= 4), *[_SCOPES] * (abi >= 6)]
    attributes = struct.pack(f"={len(handled)}Q", *handled)
    ruleset = linux.syscall("landlock_create_ruleset", attributes, len(attributes), 0)
    try:
        for each in rules:
            beneath = struct.pack("=Qi", each.access & files, each.fd)
            linux.syscall("landlock_add_rule", ruleset, _PATH_BENEATH, beneath, 0)
        linux.syscall("landlock_restrict_self", ruleset, _LOG_NOTHING if abi >= 7 else 0)
    finally:
        os.close(ruleset)

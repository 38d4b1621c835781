"""Run a piece of a test in a forked child, because what it does to a process cannot be undone."""

import errno
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from vtune.sandbox.guest import linux

PR_SET_DUMPABLE = 4
NEW_USER = 0x10000000


class Killed(Exception):
    """The child was ended by a signal, whose number is the argument."""


def in_child(work: Callable[..., object], *arguments: object) -> Any:
    """Run `work` in a forked child and return its result, as JSON; an exception there fails the test here."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _report(writer, work, arguments)
    os.close(writer)
    with open(reader, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        raise Killed(-code)
    value, error = json.loads(content)
    assert not error, error
    return value


def _report(writer: int, work: Callable[..., object], arguments: tuple[object, ...]) -> NoReturn:
    value, error = None, ""
    try:
        value = work(*arguments)
    finally:
        if sys.exc_info()[0] is not None:
            error = traceback.format_exc()
        os.write(writer, json.dumps([value, error]).encode())
        os._exit(0)


def outcome(action: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """The name of the errno that an action raised, or "done"."""
    try:
        action(*arguments, **options)
    except OSError as error:
        return type(error).__name__ if error.errno is None else errno.errorcode[error.errno]
    return "done"


def promise_no_new_privileges() -> None:
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)


def give_up_capabilities() -> None:
    linux.syscall("capset", (0x20080522).to_bytes(4, "little") + bytes(4), bytes(24))


def become_nobody_special() -> None:
    """Become user 1000 without capabilities, who can still access the files of the user running the test."""
    uid, gid = os.geteuid(), os.getegid()
    linux.syscall("unshare", NEW_USER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"1000 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"1000 {gid} 1")
    give_up_capabilities()
    # Giving up capabilities makes a process unreadable to itself, unlike a fresh process.
    linux.prctl(PR_SET_DUMPABLE, 1)
    assert os.geteuid() == 1000

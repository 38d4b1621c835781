"""Namespaces: a session's own small machine, with no network, other processes or host files in sight.

They belong to the fork server and are set up once. Root may create them; anyone else needs a user namespace,
which some machines and most containers refuse, so `why_not` tries everything in a throwaway process.
"""

import os
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from . import linux

HOST_NAME = "sandbox"

_NEW_MOUNTS, _NEW_UTS, _NEW_IPC, _NEW_USER = 0x00020000, 0x04000000, 0x08000000, 0x10000000
_NEW_PIDS, _NEW_NETWORK = 0x20000000, 0x40000000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_PROGRAMS = 1, 2, 4, 8
_REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1 << 5, 1 << 12, 1 << 14, 1 << 18
_DETACH = 2
_KEPT = os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC
"""Mount flags that a user namespace may not remove. The bits are the same as for mounting."""


@dataclass(frozen=True, slots=True)
class View:
    """What stays visible, as absolute paths at their usual places. All of them must exist."""

    read_only: tuple[str, ...]
    devices: tuple[str, ...]
    writable: tuple[str, ...]


def why_not(view: View, mount_point: str) -> str:
    """Why namespaces are not available here, in words for the user; empty if everything worked.

    Args:
        view: What has to stay visible.
        mount_point: An existing empty folder.
    """

    def attempt() -> str:
        leave_pids()
        return _in_child(inner)

    def inner() -> str:
        leave_the_rest(view, mount_point)
        return ""

    return _in_child(attempt)


def leave_pids() -> None:
    """Give the next child of this process its own process table, in which it is number 1.

    Unless root, it also moves into a user namespace, as the same user. The process must have one thread.

    Raises:
        OSError: If the kernel refuses.
    """
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        linux.syscall("unshare", _NEW_PIDS)
        return
    linux.syscall("unshare", _NEW_USER | _NEW_PIDS)
    own = Path("/proc/self")
    (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(f"{uid} {uid} 1")
    (own / "gid_map").write_text(f"{gid} {gid} 1")


def leave_the_rest(view: View, mount_point: str) -> None:
    """Leave the machine's files, network, shared memory and host name for a root that shows only `view`.

    The new root has no /proc: whatever needs it must run earlier.

    Args:
        view: What stays visible.
        mount_point: An existing empty folder, in which the new root is assembled.

    Raises:
        OSError: If the kernel refuses, or a path does not exist.
    """
    linux.syscall("unshare", _NEW_MOUNTS | _NEW_NETWORK | _NEW_IPC | _NEW_UTS)
    socket.sethostname(HOST_NAME)
    _mount(None, "/", _RECURSIVE | _PRIVATE)
    _mount("tmpfs", mount_point, _NO_SUID | _NO_DEVICES, kind="tmpfs", options="size=1m,mode=755")
    places = [(path, _READ_ONLY | _NO_SUID | _NO_DEVICES) for path in view.read_only]
    # Devices can be written to on a read-only mount; their mode and owner cannot be changed.
    places += [(path, _READ_ONLY | _NO_SUID | _NO_PROGRAMS) for path in view.devices]
    places += [(path, _NO_SUID | _NO_DEVICES | _NO_PROGRAMS) for path in view.writable]
    # Outermost first: mounting a folder after one inside it would cover the inner one.
    for path, flags in sorted(places, key=lambda place: len(Path(place[0]).resolve().parts)):
        _show(path, mount_point, flags)
    os.chdir(mount_point)
    # Pivot onto itself: the old root then lies on top of the new one and needs no folder in it.
    linux.syscall("pivot_root", b".", b".")
    linux.syscall("umount2", b".", _DETACH)
    os.chdir("/")
    _mount(None, "/", _REMOUNT | _BIND | _READ_ONLY | _NO_SUID | _NO_DEVICES | _NO_PROGRAMS)


def _show(path: str, root: str, flags: int) -> None:
    """Make `path`, and everything mounted below it, visible below `root`."""
    place = _make_place(path, root)
    target = root + place
    # If the tree contains the new root, it must not be copied into itself with all its mounts.
    around_root = Path(root).resolve().is_relative_to(place)
    _mount(place, target, _BIND | (0 if around_root else _RECURSIVE))
    for mounted in _mounts_below(target):
        kept = os.statvfs(mounted).f_flag & _KEPT
        _mount(None, mounted, _REMOUNT | _BIND | flags | kept)


def _make_place(path: str, root: str) -> str:
    """Create below `root` what a mount of `path` needs: folders, the same symbolic links, an empty file.

    Returns:
        The path without symbolic links.

    Raises:
        OSError: If the path does not exist.
    """
    is_folder = stat.S_ISDIR(Path(path).stat().st_mode)
    place = Path("/")
    ahead = path.split("/")[::-1]
    while ahead:
        part = ahead.pop()
        if part in ("", "."):
            continue
        if part == "..":
            place = place.parent
            continue
        here = place / part
        there = Path(f"{root}{here}")
        if here.is_symlink():
            link = str(here.readlink())
            if not there.is_symlink():
                there.symlink_to(link)
            ahead += link.split("/")[::-1]
            place = Path("/") if link.startswith("/") else place
            continue
        place = here
        if there.exists():
            continue
        if ahead or is_folder:
            there.mkdir()
            there.chmod(0o755)
        else:
            there.touch()
    return str(place)


def _mounts_below(target: str) -> list[str]:
    """The mount at `target` and those inside it, except covered ones, which are unreachable."""
    top = Path(target).resolve()
    found = []
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        fields = line.split(b" ")
        # The kernel escapes blanks and backslashes in octal.
        place = os.fsdecode(fields[4].decode("unicode_escape").encode("latin-1"))
        if Path(place).is_relative_to(top) and _mount_in_sight(place) == int(fields[0]):
            found.append(place)
    return found


def _mount_in_sight(path: str) -> int | None:
    """The id of the mount that `path` leads to; None if another mount covers the path itself."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        facts = dict(line.split(":") for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines())
    finally:
        os.close(fd)
    return int(facts["mnt_id"])


def _mount(
    source: str | None, target: str, flags: int, *, kind: str | None = None, options: str | None = None
) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    try:
        linux.syscall("mount", texts[0], texts[1], texts[2], flags, texts[3])
    except OSError as error:
        raise OSError(error.errno, f"mount {target}: {os.strerror(error.errno or 0)}") from None


def _in_child(work: Callable[[], str]) -> str:
    """Run `work` in a forked child and return its answer; an OSError is an answer too."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _answer(work, writer)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"the trial was ended by signal {-code}"
    return answer if code == 0 else f"the trial ended with status {code}"


def _answer(work: Callable[[], str], writer: int) -> NoReturn:
    code = 1
    try:
        try:
            answer = work()
        except OSError as error:
            answer = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        os.write(writer, answer.encode())
        code = 0
    finally:
        # Never return to the caller's code, which runs in the parent.
        os._exit(code)

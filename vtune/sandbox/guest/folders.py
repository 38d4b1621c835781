"""The folders of a sandbox: where a session works, what it reads, and how to remove all of it.

<sandbox>/s000001/ws   the session's workspace, its working folder
<sandbox>/s000001/in   its input pictures and their pixels, read-only
<sandbox>/pixels       the same pixels, for later sessions
<sandbox>/old-…        a workspace that exceeded its quota, until it is removed
"""

import errno
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

WORKSPACE = "ws"
INPUTS = "in"
ASIDE = "old-"
"""Prefix for the name of a former workspace that is about to be removed."""
QUICK = 100
"""Files and folders that can be removed within a few milliseconds. Ours: on a busy disk each may take one."""
ATTEMPTS = 100
"""Attempts to remove a folder that another process is removing too."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_session(folder: str, uid: int | None) -> None:
    """Make the folders of a session.

    Args:
        folder: Folder of the session; it must not exist.
        uid: Owner of the workspace, if sessions have their own users.
    """
    # A session's own user must be able to pass through it; nobody may list it.
    Path(folder).mkdir(0o711)
    Path(folder, INPUTS).mkdir(0o750)
    Path(folder, WORKSPACE).mkdir(0o700)
    if uid is not None:
        os.chown(f"{folder}/{INPUTS}", -1, uid)
        os.chown(f"{folder}/{WORKSPACE}", uid, uid)


def quick_to_remove(folder: str) -> bool:
    """Whether a folder holds so little that removing it takes no time; True if it does not exist."""
    try:
        return sum(1 for _ in itertools.islice(_entries(folder), QUICK + 1)) <= QUICK
    except FileNotFoundError:
        return True
    except OSError:
        # Inaccessible even to its owner, or nested too deep for a path.
        return False


def _entries(folder: str) -> Iterator[None]:
    with os.scandir(folder) as entries:
        for entry in entries:
            yield None
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(entry.path)


def remove(folder: str) -> None:
    """Remove a folder with all its contents; it need not exist.

    Folders that a session made may be inaccessible even to their owner, or nested too deep for any path or
    recursion: each one is made accessible, and its contents are moved to the top.

    It is safe if another process removes the same folder at the same time, as the guardian does when the
    fork server dies.

    Raises:
        OSError: If something cannot be removed.
    """
    for _ in range(ATTEMPTS):
        try:
            _remove(folder)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise
        if not os.path.lexists(folder):
            return
    raise OSError(errno.ENOTEMPTY, "something goes on being written", folder)


def _remove(folder: str) -> None:
    top = os.open(folder, _FOLDER)
    # Names that code cannot have predicted and taken.
    token = os.urandom(8).hex()
    free = (f"{token}.{number}" for number in itertools.count())
    try:
        while inner := _folders_of(top):
            for name in inner:
                _empty_into(top, name, free)
    finally:
        os.close(top)
    Path(folder).rmdir()


def _empty_into(top: int, name: str, free: Iterator[str]) -> None:
    """Remove a folder of `top`; folders inside it become folders of `top`."""
    folder = os.open(name, _FOLDER, dir_fd=top)
    try:
        for inner in _folders_of(folder):
            os.rename(inner, next(free), src_dir_fd=folder, dst_dir_fd=top)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)


def _folders_of(folder: int) -> list[str]:
    """The folders in a folder; everything else in it is removed."""
    # Closing the listing closes its own duplicate, which shares the offset.
    os.lseek(folder, 0, os.SEEK_SET)
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    return [name for name in names if not _removed(name, folder)]


def _removed(name: str, folder: int) -> bool:
    """Remove an entry unless it is a folder; a folder is made accessible to its owner."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)
        return True
    os.chmod(name, 0o700, dir_fd=folder)
    return False

"""File locks, which some shared file systems do not support."""

import errno
import fcntl
from typing import IO

LACKING = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
"""Errors from Lustre mounted without `flock`, NFS without its lock daemon, and others."""


def lock(file: IO[str] | int, *, wait: bool = False) -> bool:
    """Lock a file for this process, until it is closed.

    Args:
        file: An open file, or its descriptor.
        wait: Whether to wait for a process that holds the lock.

    Returns:
        Whether it is locked; False if its file system does not support locks.

    Raises:
        BlockingIOError: If another process holds the lock.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in LACKING:
            raise
        return False
    return True

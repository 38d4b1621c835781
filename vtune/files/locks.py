"""File locks, which some shared file systems do not support."""

import errno
import fcntl
from typing import IO

LACKING = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
"""What Lustre mounted without `flock`, NFS without its lock daemon, and others say."""


def lock(file: IO[str] | int, *, wait: bool = False) -> bool:
    """Lock a file for this process alone, until it is closed.

    Args:
        file: Open; or its descriptor.
        wait: For a process that has it.

    Returns:
        Whether it is locked; False where its file system has no locks.

    Raises:
        BlockingIOError: If another process has it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in LACKING:
            raise
        return False
    return True

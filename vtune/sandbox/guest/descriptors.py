"""The file descriptors that a session has, and the file that it prints to."""

import fcntl
import os
from collections.abc import Sequence

# Constants of fcntl that Python 3.11 does not name on every build.
F_ADD_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW = 1033, 1, 2, 4
HIGH = 100
"""Descriptors from here on do not collide while the low ones are arranged."""


def output_file(size: int) -> int:
    """A file in memory with a fixed size; printing beyond it fails instead of filling memory.

    All holders of the descriptor share its offset, which shows how much was printed.
    """
    fd = os.memfd_create("output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)
    return fd


def arrange(*, channel: tuple[int, int], output: int, keep: Sequence[int]) -> None:
    """Keep only these open: 0 and 2 = /dev/null, 1 = the output file, the channel, and those to keep.

    Args:
        channel: Its current descriptor, and the one that it should have.
        output: The output file.
        keep: Descriptors above the channel's that stay open, in ascending order.
    """
    now, then = channel
    null = os.open(os.devnull, os.O_RDWR)
    # Move them out of the way first: a descriptor may itself be one of the targets.
    moved = [
        (target, fcntl.fcntl(fd, fcntl.F_DUPFD, HIGH)) for target, fd in ((0, null), (1, output), (then, now))
    ]
    for target, fd in moved:
        os.dup2(fd, target)
    os.dup2(0, 2)
    first = 3
    for kept in (then, *keep):
        os.closerange(first, kept)
        first = kept + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))

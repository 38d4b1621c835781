"""Where the process's C library takes memory from."""

import ctypes

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""Of `mallopt`, in glibc's malloc.h."""
LARGEST = 32 * 2**20
"""Bytes of a block that freed memory can serve: the most that glibc takes."""
KEPT = 2**30
"""Bytes of freed memory at the end of the heap that stay with the process (ours)."""


def keep_freed_memory() -> None:
    """Let the tensors of an update take the memory that those of the last one have left, on a CPU.

    malloc gives what is free at the end of its heap back to the kernel, and each page that it asks for again
    is filled with zeros: some 5 % of an update of a tiny model. C libraries other than glibc stay as they
    are.
    """
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is not None:
        tune(_MMAP_THRESHOLD, LARGEST)
        tune(_TRIM_THRESHOLD, KEPT)

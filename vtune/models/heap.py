"""Where the process's C library takes memory from, for what is computed on a CPU."""

import ctypes
from functools import cache
from pathlib import Path

_MMAP_THRESHOLD, _TOP_PAD, _TRIM_THRESHOLD = -3, -2, -1
"""Of `mallopt`, in glibc's malloc.h."""
_MADV_HUGEPAGE = 14
"""Of `madvise`, in Linux's mman-common.h."""
LARGEST = 32 * 2**20
"""Bytes of a block that the heap can serve: the most that glibc takes."""
KEPT = 2**30
"""Bytes by which the heap is made longer, ours. What of them is never used takes no memory."""
PAD = 128 * 2**10
"""Bytes that glibc asks for beyond what it needs."""


@cache
def use_huge_pages() -> None:
    """Let tensors lie in a heap of huge pages that stays with the process; once a process.

    What streams through pages of 4 kB waits for their addresses, in a virtual machine for longer than for the
    numbers; many kernels have pages of 2 MB only for those who ask. (For blocks beyond `LARGEST` torch asks
    by itself where `THP_MEM_ALLOC_ENABLE` is 1, which the command line sets.) And malloc gives what is free
    at the end of its heap back to the kernel, which fills each page that it is asked for again with zeros.

    Results are the same bits. C libraries other than glibc, and kernels without huge pages, stay as they are.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.mallopt(_MMAP_THRESHOLD, LARGEST)
    libc.mallopt(_TRIM_THRESHOLD, 2 * KEPT)
    # In one piece, before anything lies there: what the heap grows by later has pages of the usual size.
    libc.mallopt(_TOP_PAD, KEPT)
    libc.free(libc.malloc(LARGEST - PAD))
    libc.mallopt(_TOP_PAD, PAD)
    for start, end in _heap():
        libc.madvise(start, end - start, _MADV_HUGEPAGE)


def _heap() -> list[tuple[int, int]]:
    """Where the heap of the main thread lies: first address, and the one behind the last."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    spans = [line.split()[0].split("-") for line in lines if line.endswith("[heap]")]
    return [(int(start, 16), int(end, 16)) for start, end in spans]

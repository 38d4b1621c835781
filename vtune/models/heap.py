"""How the process's C library allocates memory for computation on a CPU."""

import ctypes
import os
from pathlib import Path

_MMAP_THRESHOLD, _TOP_PAD, _TRIM_THRESHOLD = -3, -2, -1
"""Parameters of `mallopt`, from glibc's malloc.h."""
_MADV_HUGEPAGE = 14
"""Argument of `madvise`, from Linux's mman-common.h."""
LARGEST = 32 * 2**20
"""Block size in bytes from which glibc maps a block separately: the largest value it accepts."""
TRIMMED = 2**31 - 1
"""Free bytes at the end of the heap above which they are returned to the kernel: the largest value."""
RESERVED = 2**30
"""Address space in bytes by which the heap is extended; ours."""
PAD = 128 * 2**10
"""Extra bytes that glibc requests beyond what it needs."""

SWITCH = "THP_MEM_ALLOC_ENABLE"
"""Torch's own variable: 1 requests huge pages for each tensor of 2 MB or more. 0 switches off ours, too."""
_HUGE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")


def has_huge_pages() -> bool:
    """Whether the kernel has huge pages of 2 MB; on some ARM kernels they have 512 MB, which is too much."""
    try:
        return int(_HUGE.read_text()) <= 2 * 2**20
    except (OSError, ValueError):
        return False


def use_huge_pages() -> None:
    """Place the main thread's tensors in a heap that the process keeps, and in huge pages.

    With 4 kB pages, streaming through memory waits for TLB misses, in a virtual machine sometimes for longer
    than for the data; many kernels give huge pages only on request. And malloc returns free memory at the end
    of its heap to the kernel, which zeroes each page again when it is requested the next time.

    Results are bit-identical. Does nothing with C libraries other than glibc; kernels without huge pages keep
    small ones. Calling it again changes nothing.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return
    libc.mallopt(_MMAP_THRESHOLD, LARGEST)
    libc.mallopt(_TRIM_THRESHOLD, TRIMMED)
    _reserve(libc)
    if os.environ.get(SWITCH) != "0" and has_huge_pages():
        libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for start, end in _heap():
            libc.madvise(start, end - start, _MADV_HUGEPAGE)


def _reserve(libc: ctypes.CDLL) -> None:
    """Extend the heap in one piece: what it grows by later has pages of the usual size."""
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    libc.mallopt(_TOP_PAD, RESERVED)
    blocks: list[int] = []
    # A free block at the end of the heap would be reused without extending it.
    while sum(end - start for start, end in _heap()) < RESERVED and len(blocks) * LARGEST < RESERVED:
        block = libc.malloc(LARGEST - PAD)
        if block is None:  # the address space is limited
            break
        blocks.append(block)
    for block in blocks:
        libc.free(block)
    libc.mallopt(_TOP_PAD, PAD)


def _heap() -> list[tuple[int, int]]:
    """Address ranges of the main thread's heap, (first, one past the last); empty if they cannot be read."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    spans = [line.split()[0].split("-") for line in lines if line.endswith("[heap]")]
    return [(int(start, 16), int(end, 16)) for start, end in spans]

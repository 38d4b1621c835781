import ctypes
import os
import subprocess
import sys

import pytest

from vtune.models.heap import LARGEST, RESERVED, SWITCH, has_huge_pages

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library is not glibc"
)

FAULTS = """
import resource
from vtune.models.heap import use_huge_pages

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    # 240 MB that are written to, and end together, as the tensors of an update do.
    held = [b"1" * 2**23 for _ in range(30)]
    del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if {ours}:
    use_huge_pages()
pages(), pages()
print(pages())
"""
HEAP = """
from pathlib import Path
from vtune.models.heap import use_huge_pages

{before}
use_huge_pages()
use_huge_pages()
maps = Path("/proc/self/smaps").read_text().split("[heap]")[1:]
sizes = [int(one.split("Size:")[1].split()[0]) * 1024 for one in maps]
huge = ["hg" in one.split("VmFlags:")[1].splitlines()[0].split() for one in maps]
print(sum(size for size, of in zip(sizes, huge) if of), sum(sizes))
"""
FREE_END = f"""
from ctypes import CDLL, c_size_t, c_void_p
libc = CDLL(None)
libc.malloc.restype, libc.free.argtypes = c_void_p, [c_void_p]
libc.mallopt(-3, {LARGEST})
libc.mallopt(-1, 2**30)
held = [libc.malloc(c_size_t({LARGEST - 2**20})) for _ in range(3)]
for one in held:
    libc.free(one)
"""


def printed(code: str, switch: str = "1") -> list[int]:
    """The output of a separate process, as heap settings apply to a whole process."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, SWITCH: switch},
    )
    return list(map(int, done.stdout.split()))


def test_an_update_reuses_the_memory_of_the_last_one() -> None:
    # Otherwise the kernel fills 2,048 pages or four huge pages per block.
    assert printed(FAULTS.format(ours=True))[0] < printed(FAULTS.format(ours=False))[0] / 10


@pytest.mark.parametrize("before", ["", FREE_END], ids=["new", "with a free end"])
def test_the_heap_is_extended_once_and_requests_huge_pages(before: str) -> None:
    if not has_huge_pages():
        pytest.skip("this kernel has no huge pages of 2 MB")
    huge, size = printed(HEAP.format(before=before))
    assert RESERVED <= huge == size < 2 * RESERVED


def test_huge_pages_can_be_switched_off() -> None:
    huge, size = printed(HEAP.format(before=""), switch="0")
    assert (huge, size >= RESERVED) == (0, True)


def test_limited_address_space_still_allows_allocation() -> None:
    """Then the heap is not extended, and allocations come from elsewhere."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))"
    _, size = printed(HEAP.format(before=limit) + "\nheld = [b'1' * 2**20 for _ in range(64)]")
    assert size < RESERVED

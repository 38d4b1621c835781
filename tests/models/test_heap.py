import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = """
import resource
from vtune.models.heap import use_huge_pages

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    # 240 MB that are written to, and end together, as the tensors of an update do.
    held = [b"1" * 2**23 for _ in range(30)]
    del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if {huge}:
    use_huge_pages()
    use_huge_pages()
print(pages(), pages())
"""


def faults(*, huge: bool) -> list[int]:
    """Pages that the kernel fills, the first time and the second, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS.format(huge=huge)], stdout=subprocess.PIPE, text=True, check=True
    )
    return list(map(int, done.stdout.split()))


def test_an_update_takes_the_memory_that_the_last_one_has_left() -> None:
    # The other way round the kernel fills 2,048 pages for each block, or four huge ones.
    assert faults(huge=True)[1] < faults(huge=False)[1] / 10


def test_tensors_lie_in_huge_pages_where_the_kernel_gives_them_to_those_who_ask() -> None:
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.exists() or "[madvise]" not in enabled.read_text():
        pytest.skip("this kernel gives huge pages to all, or to nobody")
    # 61,440 pages of 4 kB; of huge ones 120, and the few around them.
    assert faults(huge=True)[0] < faults(huge=False)[0] / 10

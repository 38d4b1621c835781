import subprocess
import sys

FAULTS = """
import resource
from vtune.update.heap import keep_freed_memory

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    # 240 MB that are written to, and end together, as the tensors of an update do.
    held = [b"1" * 2**23 for _ in range(30)]
    del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if {keep}:
    keep_freed_memory()
pages(), pages()
print(pages())
"""


def faults(*, keep: bool) -> int:
    """Pages that the kernel fills, in a process of its own: how memory is taken holds for all of it."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS.format(keep=keep)], stdout=subprocess.PIPE, text=True, check=True
    )
    return int(done.stdout)


def test_an_update_takes_the_memory_that_the_last_one_has_left() -> None:
    # The other way round the kernel fills 2,048 pages for each block, or four huge ones.
    assert faults(keep=True) < faults(keep=False) / 10

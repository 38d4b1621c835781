from pathlib import Path

import pytest

from tests.conftest import Once
from tests.update.build import with_heads
from tests.update.pair import both_end_well


@pytest.fixture(scope="session")
def pair(tiny: Path, tiny3: Path, once: Once) -> Path:
    """What two processes have done together, a file for each story: they import torch once for all."""

    def run(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        even = with_heads(tiny, folder / "even", kv_heads=2)
        # Fewer key heads than processes.
        even3 = with_heads(tiny3, folder / "even3", kv_heads=1)
        models = ", ".join(repr(str(path)) for path in (tiny, tiny3, even, even3))
        code = f"""
from tests.update import balance_processes, sequence_processes, two_processes

balance_processes.main("balanced")
sequence_processes.main({str(even)!r}, {str(even3)!r}, "shared-rows")
two_processes.main({models}, out="learnt")
"""
        both_end_well(code, folder)

    return once("pair", run)

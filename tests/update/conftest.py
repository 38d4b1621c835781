from pathlib import Path

import pytest

from tests.conftest import Once
from tests.update.build import with_heads
from tests.update.pair import both_end_well

IMPORTS = """
import torch._dynamo, torch._inductor.config
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl
from transformers.models.qwen3_vl import modeling_qwen3_vl
import peft
from tests.conftest import say_little
from tests.update import balance_processes, sequence_processes, shard_processes, two_processes
say_little()
"""
"""Everything that they would import, including lazy imports."""


@pytest.fixture(scope="session")
def pair(tiny: Path, tiny3: Path, once: Once) -> Path:
    """The results of two processes, one file per scenario; they are forked once for all scenarios."""

    def run(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        even = with_heads(tiny, folder / "even", kv_heads=2)
        # It has fewer key heads than processes.
        even3 = with_heads(tiny3, folder / "even3", kv_heads=1)
        models = ", ".join(repr(str(path)) for path in (tiny, tiny3, even, even3))
        code = f"""
from tests.update import balance_processes, sequence_processes, shard_processes, two_processes

balance_processes.main("balanced")
sequence_processes.main({str(even)!r}, {str(even3)!r}, "shared-rows")
two_processes.main({models}, out="learnt")
shard_processes.main({str(tiny)!r}, {str(tiny3)!r}, "shards")
"""
        both_end_well(code, folder, imports=IMPORTS)

    return once("pair", run)

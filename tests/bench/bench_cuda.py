"""All layers of published models on a fake CUDA device: kernels and memory of a micro-batch.

Kernels before (a call for each window of the vision tower and each segment of the row) and after (one call
per layer), and the peak of a micro-batch of 32k tokens against the plan. The device is in `tests/cuda`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cuda.guard import build, obstacle
from tests.cuda.test_step import NAMES, measured


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (reason := obstacle()) is not None:
        pytest.skip(reason)
    out = tmp_path_factory.mktemp("guard") / "guard.so"
    build(out)
    return out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("varlen", [False, True], ids=["call a window", "call a layer"])
def test_a_micro_batch_of_all_layers(name: str, varlen: bool, library: Path) -> None:
    say(name, varlen, measured([{"name": name, "varlen": varlen}], library)[0])


def test_a_row_of_many_segments(library: Path) -> None:
    """Eight groups of eight conversations; the fake device has unlimited memory."""
    name = "Qwen2.5-VL-7B"
    say(name, True, measured([{"name": name, "groups": 8}], library)[0])


def say(name: str, varlen: bool, one: Mapping[str, Any]) -> None:
    planned = sum(one["planned"].values())
    print(
        f"\n{name}, {'one call per layer' if varlen else 'one call a window'}: "
        f"{one['tokens']} tokens, {one['patches']} patches: {one['kernels']} kernels "
        f"({one['kernels_forward']} forward), {one['peak'] / 1e9:.1f} GB beside weights and gradients, "
        f"{planned / 1e9:.1f} planned ({planned / one['peak'] - 1:+.0%})"
    )

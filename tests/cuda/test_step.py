"""The training step at published widths on a CUDA device that computes nothing, few layers deep.

Holds what a first hour on a GPU would find: tensors on the wrong device, masks of n x n, memory beyond the
plan, a kernel for each window or segment. Not held: values, which kernel a CUDA build chooses, and what
`tests/cuda/stand_ins.py` replaces. All layers: `tests/bench/bench_cuda.py`.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HANGS, ROOT, Once
from tests.cuda.guard import build, environment, obstacle

NAMES = ("Qwen2.5-VL-7B", "Qwen3-VL-8B", "Qwen2.5-VL-32B")
FEW: Mapping[str, Any] = {"layers": 1, "depth": 2}
CASES: Mapping[str, Mapping[str, Any]] = {
    **{name: {"name": name, **FEW} for name in NAMES},
    "a layer more of both": {"name": "Qwen2.5-VL-7B", "layers": 2, "depth": 3},
    "all deepstack layers": {"name": "Qwen3-VL-8B", "layers": 3, "depth": 3},
    "a row of four GPUs": {"name": "Qwen2.5-VL-7B", **FEW, "groups": 8, "shared": 4},
    "short row": {"name": "Qwen2.5-VL-7B", **FEW, "groups": 1, "side": 32},
    "frozen tower, all kept": {
        "name": "Qwen2.5-VL-7B",
        **FEW,
        "frozen": ["vision", "connector"],
        "checkpointing": False,
    },
}
KERNELS = 15_000
"""In a micro-batch of 32k tokens of Qwen2.5-VL-7B, at most. Ours: at 20 µs each 0.3 s of the host's time, in
which a GPU computes for seconds."""

MEASURE = "import gc; gc.disable(); from tests.cuda.step import main; main()"
"""`python -m tests.cuda.step` that looks for no garbage: a sixth of its time, and few layers leave little."""

Found = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module")
def found(once: Once) -> Found:
    """What each case takes: all in one process that has the device."""
    if (reason := obstacle()) is not None:
        pytest.skip(reason)
    library = once("guard", lambda folder: build(folder / "guard.so")) / "guard.so"
    return dict(zip(CASES, measured(list(CASES.values()), library), strict=True))


def measured(cases: list[Mapping[str, Any]], library: Path) -> list[dict[str, Any]]:
    ended = subprocess.run(
        [sys.executable, "-c", MEASURE, json.dumps(cases)],
        cwd=ROOT, env=environment(library), capture_output=True, text=True, timeout=HANGS, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    result: list[dict[str, Any]] = json.loads(ended.stdout)
    return result


@pytest.mark.parametrize("case", CASES)
def test_everything_is_on_the_gpu(case: str, found: Found) -> None:
    one = found[case]
    assert one["devices"] == ["cuda:0"]
    # The order of patches by windows is made on the host, by transformers.
    assert set(one["crossed"]) <= {"index", "_index_put_impl_", "index_put"}, one["crossed"]


@pytest.mark.parametrize("case", [case for case in CASES if case != "short row"])
def test_nothing_is_as_large_as_row_by_row(case: str, found: Found) -> None:
    one = found[case]
    assert one["tokens"] > 30_000
    assert one["patches"] > 40_000
    assert one["largest"] < one["tokens"] ** 2


@pytest.mark.parametrize("case", CASES)
def test_a_micro_batch_takes_what_the_plan_says(case: str, found: Found) -> None:
    one = found[case]
    planned = sum(one["planned"].values())
    assert planned == pytest.approx(one["peak"], rel=0.1)


@pytest.mark.parametrize("case", CASES)
def test_an_optimizer_step_takes_what_the_plan_says(case: str, found: Found) -> None:
    one = found[case]
    assert sum(one["planned_step"].values()) == pytest.approx(one["peak_step"], rel=0.1)


@pytest.mark.parametrize("case", CASES)
def test_a_layer_attends_in_one_call_to_windows_and_to_segments(case: str, found: Found) -> None:
    given, calls = CASES[case], found[case]["by_name"]
    once = given["layers"] + given["depth"]
    frozen = given["depth"] if "frozen" in given else 0
    assert calls["_varlen_attn"] == once * (2 if given.get("checkpointing", True) else 1)
    assert calls["_varlen_attn_backward"] == once - frozen
    assert not [name for name in calls if "scaled_dot_product" in name]


def test_a_micro_batch_of_the_seven_billion_starts_few_kernels(found: Found) -> None:
    one = found["Qwen2.5-VL-7B"]["kernels"]
    both = found["a layer more of both"]["kernels"] - one
    assert both > 0
    # 27 more of the language model, and 30 of the vision tower.
    assert one + 30 * both <= KERNELS

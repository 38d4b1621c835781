"""What vLLM does only on GPUs, as far as its sources can be tested without one."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import vllm.v1.worker.gpu.sample.logit_bias as room
from vllm.device_allocator import AllocationData, alloc_conf, cumem
from vllm.sampling_params import SamplingParams

from vtune.errors import RunFailed
from vtune.models.policy import Policy
from vtune.rollout import vllm, vllm_senders, vllm_sleep
from vtune.rollout.recipe import TrainingRollout
from vtune.rollout.stopwatch import Stopwatch
from vtune.rollout.submission import BAN, MOST
from vtune.rollout.tensor_parallel import TensorParallelGroup
from vtune.rollout.vllm_environment import child_environment
from vtune.runs.agent import engines
from vtune.update.ranks import Ranks

GPU = torch.device("cuda", 0)


def test_vllms_sampler_supports_all_tokens_that_a_request_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU runner with fake buffers: one token more would crash vLLM."""

    class Buffer:
        def __init__(self, *given: Any, **named: Any) -> None:
            self.np = torch.zeros(8, dtype=torch.int32).numpy()

        def stage_write(self, *given: Any) -> None:
            """Store nothing."""

    monkeypatch.setattr(room, "UvaBackedTensor", Buffer)
    monkeypatch.setattr(room, "StagedWriteTensor", Buffer)
    states = SimpleNamespace(prompt_len=Buffer(), max_num_reqs=4, device=torch.device("cpu"))
    sampler = room.LogitBiasState(None, states)
    sampler.add_request(0, SamplingParams(logit_bias=dict.fromkeys(range(MOST), BAN)))
    sampler.add_request(1, SamplingParams(allowed_token_ids=list(range(MOST))))
    with pytest.raises(ValueError, match="Too many"):
        sampler.add_request(2, SamplingParams(logit_bias=dict.fromkeys(range(MOST + 1), BAN)))


def test_memory_discarded_by_sleep_is_zeroed_on_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither memory kept on the host nor memory that stays asleep is touched."""
    cleared: list[tuple[int, int]] = []
    mapped: list[tuple[int, ...]] = []
    monkeypatch.setattr(cumem, "cumem_available", True)
    monkeypatch.setattr(cumem.CuMemAllocator, "wake_up", cumem.CuMemAllocator.wake_up)
    monkeypatch.setattr(cumem, "create_and_map", mapped.append)
    monkeypatch.setattr(torch.accelerator, "empty_cache", lambda: None)
    runtime = SimpleNamespace(
        cudaMemset=lambda at, value, size: cleared.append((at, size)), cudaMemcpy=lambda *given: None
    )
    monkeypatch.setattr(cumem, "libcudart", runtime)

    def kept(tag: str, at: int, *, asleep: bool = True, backup: torch.Tensor | None = None) -> AllocationData:
        return AllocationData((0, 10 * at, at, 0), tag, backup, asleep)

    held = {
        1: kept("weights", 1),
        2: kept("runtime", 2, backup=torch.zeros(20, dtype=torch.uint8)),
        3: kept("kv_cache", 3),
        4: kept("weights", 4, asleep=False),
    }
    vllm_sleep.clear_what_wakes()
    allocator = SimpleNamespace(pointer_to_data=held)
    cumem.CuMemAllocator.wake_up(allocator, ["weights"])
    assert len(mapped) == 2
    assert cleared == [(1, 10)]
    cumem.CuMemAllocator.wake_up(allocator, ["kv_cache"])
    assert cleared == [(1, 10), (3, 30)]


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_weights_are_sent_in_shareable_memory(monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    chosen = "max_split_size_mb:512,expandable_segments:True"
    written: list[str] = []
    monkeypatch.setattr(vllm_senders, "current_alloc_conf", lambda: chosen)
    monkeypatch.setattr(vllm_senders, "set_alloc_conf", written.append)

    def send() -> None:
        with vllm_senders._shareable():
            assert written == ["max_split_size_mb:512,expandable_segments:False"]
            if ends == "badly":
                raise RunFailed("a handle")

    if ends == "badly":
        with pytest.raises(RunFailed, match="a handle"):
            send()
    else:
        send()
    assert written[1:] == [chosen]


def test_a_standard_allocator_is_left_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in alloc_conf.ALLOC_CONF_ENV_VARS:
        monkeypatch.delenv(name, raising=False)
    written: list[str] = []
    monkeypatch.setattr(vllm_senders, "set_alloc_conf", written.append)
    with vllm_senders._shareable():
        pass
    assert written == []


def test_float32_is_not_multiplied_in_tf32() -> None:
    """`VLLM_FLOAT32_MATMUL_PRECISION` affects only torch; float32 attention uses Triton."""
    assert child_environment(GPU, threads=1)["TRITON_F32_DEFAULT"] == "ieee"


@pytest.mark.parametrize(
    ("named", "wanted"), [(None, None), ("", "vtune_files"), ("theirs,more", "theirs,more,vtune_files")]
)
def test_our_plugin_is_loaded_whichever_plugins_the_user_names(
    monkeypatch: pytest.MonkeyPatch, named: str | None, wanted: str | None
) -> None:
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    if named is not None:
        monkeypatch.setenv("VLLM_PLUGINS", named)
    assert child_environment(GPU, threads=1)["VLLM_PLUGINS"] == wanted
    assert os.environ.get("VLLM_PLUGINS") == named


def test_an_error_in_a_worker_is_a_run_failure() -> None:
    """vLLM raises it without a specific type, and a checkpoint is written only for run failures."""

    async def refused() -> None:
        raise Exception("Call to wake_up method failed: CUDA out of memory")

    llm: Any = SimpleNamespace(errored=False)
    with pytest.raises(RunFailed, match=r"failed a request: .* CUDA out of memory"):
        asyncio.run(vllm._alive(llm, refused()))


def test_all_processes_of_a_group_release_their_cache_before_vllm_starts(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    class Formed(Exception):
        """Raised once the group is formed, to skip what follows."""

    def formed(*given: Any, **named: Any) -> TensorParallelGroup:
        calls.append("formed")
        raise Formed

    monkeypatch.setattr(engines, "release_cache", lambda device: calls.append("released"))
    monkeypatch.setattr(TensorParallelGroup, "formed", formed)
    recipe = TrainingRollout.model_construct(engine="vllm", servers=(), tensor_parallel=2)
    with pytest.raises(Formed):
        engines.training_engine(
            recipe, policy, model="m", dtype="bfloat16", threads=1, ranks=Ranks(1, 2, 1), folder=Path(),
            waiting=Stopwatch(),
        )  # fmt: skip
    assert calls == ["released", "formed"]

"""Environment variables for vLLM's own processes, which differ from those of training."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from vtune.errors import RunFailed

BATCHED_TOKENS = 8192
"""Tokens that vLLM processes at once on a GPU (`max_num_batched_tokens`), ours: its default in a process is
2,048. A plan counts the memory that they need."""
PLUGIN = "vtune_files"
"""Our entry point in `vllm.general_plugins`."""
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables of our training's process group: vLLM's processes form their own."""


def child_environment(device: torch.device, *, threads: int, gpus: int = 1) -> dict[str, str | None]:
    """Environment variables for vLLM's processes; None removes one.

    Args:
        device: Its first GPU, or the CPU.
        threads: Only on a CPU.
        gpus: GPUs that share a model, starting at `device`.
    """
    found: dict[str, str | None] = {
        **dict.fromkeys(LAUNCHER),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
        # A forked child would inherit torch's threads in an undefined state.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_PLUGINS": _plugins(),
    }
    if device.type == "cuda":
        first = device.index or 0
        said = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = said.split(",")[first : first + gpus] if said else map(str, range(first, first + gpus))
        return found | {
            "CUDA_VISIBLE_DEVICES": ",".join(names),
            "VLLM_CACHE_ROOT": _cache(),
            # float32 attention runs in Triton, which otherwise multiplies in TF32: 10 bits instead of 23.
            "TRITON_F32_DEFAULT": "ieee",
        }
    # If bound to cores, it would share the first ones with every other rank. Compiling the sampler takes 10
    # s.
    return found | {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # vLLM requires this for "uni" on a CPU; the scheduler still has its own process.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "OMP_NUM_THREADS": str(threads),
        "TORCH_COMPILE_DISABLE": "1",
    }


def _plugins() -> str | None:
    """The plugins that vLLM loads: those that the user lists, plus ours; None if the user sets nothing."""
    named = os.environ.get("VLLM_PLUGINS")
    return None if named is None else ",".join([*filter(None, named.split(",")), PLUGIN])


def _cache() -> str:
    """The compile cache of vLLM: its files are not written atomically, so each rank has its own."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = Path(os.environ.get("VLLM_CACHE_ROOT") or home / "vllm")
    rank = os.environ.get("RANK")
    return str(root if rank is None else root / f"rank-{rank}")


@contextlib.contextmanager
def environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set these variables inside the block, for processes that are started there."""
    before = {name: os.environ.get(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def starting(gpu_memory: float) -> Iterator[None]:
    """Start vLLM; details of a failure appear only in the output of vLLM's own process.

    Args:
        gpu_memory: The share of a GPU's memory that it may use.

    Raises:
        RunFailed: If it does not start.
    """
    try:
        yield
    except TimeoutError as error:
        raise RunFailed(
            f"the vLLM of this process was not ready in time: {error}",
            fix="a first start reads weights and compiles: set VLLM_ENGINE_READY_TIMEOUT_S (seconds, 600 if "
            "not set) to more",
        ) from error
    except Exception as error:  # also NVML's own error, for a GPU that it does not know by the given name
        raise RunFailed(
            f"the vLLM of this process did not start: {type(error).__name__}: {error}",
            fix="its messages above say why; if it finds too little memory, change rollout.gpu_memory "
            f"(now {gpu_memory:g}; memory that others use on the GPU counts) or lower "
            "rollout.max_tokens",
        ) from error

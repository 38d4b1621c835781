"""The environment of vLLM's own processes, which is not that of the training."""

import contextlib
import os
from collections.abc import Iterator, Mapping

import torch

LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Of our training group: vLLM's processes form one of their own."""


def child_environment(device: torch.device, *, threads: int) -> dict[str, str | None]:
    """Variables of vLLM's processes; None takes one away. `threads` counts on a CPU alone."""
    found: dict[str, str | None] = {
        **dict.fromkeys(LAUNCHER),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        # A forked child would inherit torch's threads in a state that nobody knows.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }
    if device.type == "cuda":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        number = device.index or 0
        return found | {"CUDA_VISIBLE_DEVICES": visible.split(",")[number] if visible else str(number)}
    # Bound to cores, it would share the first ones with every other rank's. Compiling the sampler takes 10 s.
    return found | {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # What vLLM asks for to take "uni" on a CPU; the scheduler has a process of its own all the same.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "OMP_NUM_THREADS": str(threads),
        "TORCH_COMPILE_DISABLE": "1",
    }


@contextlib.contextmanager
def environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """These variables for processes that are started meanwhile."""
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

"""Clears what vLLM's GPU memory holds when it wakes from sleep."""

from typing import Any

from vllm.device_allocator import cumem

_wake_up = cumem.CuMemAllocator.wake_up


def clear_what_wakes() -> None:
    """Let memory whose contents sleep has discarded wake as zeros; without CUDA there is none.

    A model keeps more than parameters and buffers in the memory of its weights: the features that Qwen3-VL
    adds to its first layers, which are zero where there is no picture, and the positions of rows that only
    fill a graph up. Nobody writes them again after sleep of level 2. CUDA does not say what new memory holds,
    and vLLM clears it on ROCm alone.
    """
    if cumem.cumem_available:
        cumem.CuMemAllocator.wake_up = _cleared


def _cleared(allocator: Any, tags: list[str] | None = None) -> None:
    held = allocator.pointer_to_data
    lost = [at for at, one in held.items() if one.is_asleep and one.cpu_backup_tensor is None]
    _wake_up(allocator, tags)
    for at in lost:
        if not held[at].is_asleep:
            cumem.libcudart.cudaMemset(at, 0, held[at].handle[1])

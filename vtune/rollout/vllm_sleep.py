"""Clears what vLLM's GPU memory holds when it wakes from sleep."""

from typing import Any

from vllm.device_allocator import cumem

_wake_up = cumem.CuMemAllocator.wake_up


def clear_what_wakes() -> None:
    """Zero the memory that wakes after sleep has discarded its contents; does nothing without CUDA.

    Besides parameters and buffers, a model keeps other tensors in its weight memory: the features that
    Qwen3-VL adds to its first layers, which are zero where there is no picture, and the positions of padding
    rows in CUDA graphs. Nothing rewrites them after level-2 sleep. CUDA leaves the contents of new memory
    undefined, and vLLM clears it only on ROCm.
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

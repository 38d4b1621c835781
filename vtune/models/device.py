"""Threads and this process's GPU: CUDA's current device is per thread, and GPU 0 in a new one."""

from concurrent.futures import ThreadPoolExecutor

import torch


def use_device(device: torch.device) -> None:
    """Make a GPU the current one of the calling thread.

    A new thread is on GPU 0: to free memory of another there may open GPU 0 in this process too.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)


def device_thread(device: torch.device, *, threads: int | None = None) -> ThreadPoolExecutor:
    """An executor of one thread whose current device is `device`.

    Whatever calls CUDA beside the main thread runs in one of these, or after `use_device`: there a tensor "on
    cuda", a stream, and the GPU that a library asks for as the current one, are those of this process.

    Args:
        device: Of this process.
        threads: CPU threads that torch may use in it, where that differs from torch's default.
    """

    def prepare() -> None:
        if threads is not None:
            torch.set_num_threads(threads)  # belongs to a thread too
        use_device(device)

    return ThreadPoolExecutor(1, thread_name_prefix=f"vtune-{device}", initializer=prepare)


def release_cache(device: torch.device) -> None:
    """Give back what torch keeps of freed memory, so that another process can have it."""
    if device.type == "cuda":
        torch.cuda.empty_cache()

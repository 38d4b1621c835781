"""Threads and this process's GPU: CUDA's current device is per thread, and GPU 0 in a new one."""

from concurrent.futures import ThreadPoolExecutor

import torch


def use_device(device: torch.device) -> None:
    """Make a GPU the calling thread's current device.

    A new thread is on GPU 0: freeing memory of another GPU from there may open GPU 0 in this process too.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)


def device_thread(device: torch.device, *, threads: int | None = None) -> ThreadPoolExecutor:
    """A single-threaded executor whose current device is `device`.

    All CUDA calls outside the main thread must run in one of these, or after `use_device`: only then are a
    tensor "on cuda", a stream, and the GPU that a library takes as the current one, those of this process.

    Args:
        device: This process's device.
        threads: CPU threads that torch may use in it; None: torch's default.
    """

    def prepare() -> None:
        if threads is not None:
            torch.set_num_threads(threads)  # this setting is per thread
        use_device(device)

    return ThreadPoolExecutor(1, thread_name_prefix=f"vtune-{device}", initializer=prepare)


def release_cache(device: torch.device) -> None:
    """Release torch's cache of freed memory, so that another process can use it."""
    if device.type == "cuda":
        torch.cuda.empty_cache()

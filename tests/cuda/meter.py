"""Counts what passes through torch's dispatcher: kernels, bytes, and tensors on the wrong device."""

import weakref
from collections import Counter
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FREE = frozenset(
    """
    _reshape_alias _unsafe_view alias as_strided chunk detach device empty empty_like empty_strided expand
    lift_fresh new_empty new_empty_strided permute select slice split split_with_sizes squeeze t transpose
    unbind unsqueeze view
    """.split()  # noqa: SIM905
)
"""Operations that start no kernel."""
CROSSING = frozenset(["_to_copy", "copy_", "_copy_from"])
"""Operations that are meant to copy between devices."""
WHERE = torch.ops.prim.device.default
"""Queries a tensor's device. It is the most frequent operation and returns no tensor: it is not counted."""


def on_gpu(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on the GPU; for fake tensors, without going through the dispatcher."""
    if isinstance(tensor, FakeTensor):
        return tensor.fake_device.type == "cuda"
    return tensor.is_cuda


class Meter(TorchDispatchMode):
    """Counts operations and memory on the GPU while active.

    Bytes are those of storages, each counted once, from the operation that returns it until it is freed.
    Storages that existed before count once they are passed to `hold`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernels: Counter[str] = Counter()
        self.crossed: Counter[str] = Counter()
        """Operations that took tensors on both devices, by name; scalar tensors are allowed."""
        self.largest = 0
        """Elements in the largest tensor on the GPU."""
        self.now = 0
        self.peak = 0
        self._held: dict[int, int] = {}

    def hold(self, tensors: Any) -> None:
        """Count tensors that exist already."""
        for tensor in tree_leaves(tensors):
            self._track(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is WHERE:
            return func(*args)
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        out = func(*args, **(kwargs or {}))
        got = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        name = func._schema.name.split("::")[1]
        if any(on_gpu(tensor) for tensor in given + got):
            if name not in FREE:
                self.kernels[name] += 1
            if name not in CROSSING and any(not on_gpu(tensor) and tensor.dim() for tensor in given):
                self.crossed[name] += 1
        for tensor in got:
            self._track(tensor)
        return out

    def _track(self, tensor: torch.Tensor) -> None:
        if not on_gpu(tensor):
            return
        self.largest = max(self.largest, tensor.numel())
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self._held:
            return
        self._held[key] = storage.nbytes()
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._release, key)

    def _release(self, key: int) -> None:
        self.now -= self._held.pop(key)

"""What passes through torch's dispatcher: kernels, bytes, and tensors where they should not be."""

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
"""Operations that are there to go from one device to another."""
WHERE = torch.ops.prim.device.default
"""Asks where a tensor is. Most of what passes is this, and it gives no tensor: nothing of it is counted."""


def on_gpu(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on the GPU; a fake one is not asked by way of the dispatcher."""
    if isinstance(tensor, FakeTensor):
        return tensor.fake_device.type == "cuda"
    return tensor.is_cuda


class Meter(TorchDispatchMode):
    """Counts what is done on the GPU while it is on.

    Bytes are those of storages, each once, from when an operation gives them until nobody has them. Storages
    that were there before count from `hold` on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernels: Counter[str] = Counter()
        self.crossed: Counter[str] = Counter()
        """Operations that took tensors of both devices, by name; single numbers may."""
        self.largest = 0
        """Numbers of the largest tensor on the GPU."""
        self.now = 0
        self.peak = 0
        self._held: dict[int, int] = {}

    def hold(self, tensors: Any) -> None:
        """Count tensors that are there already."""
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

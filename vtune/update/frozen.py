"""Frozen weights: checkpoints' states leave them out, and `--resume` takes them from the model."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from vtune.update.parts import own_share

PIECE = 1 << 24
"""Numbers summed at a time: torch converts them to eight bytes each."""


@torch.no_grad()
def checksum_of_frozen(model: Any) -> str:
    """A sum over all frozen weights, which reveals whether they were replaced by others.

    The bits of each weight are summed rather than hashed, for speed: with adapters these are all weights of
    the base model. A permutation of the numbers within one weight goes unnoticed. Under ZeRO-3, each process
    sums its own share.
    """
    found = hashlib.blake2b(digest_size=16)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            weights = own_share(parameter)
            bits = weights.view(torch.int16 if weights.element_size() == 2 else torch.int32).reshape(-1)
            sums = [piece.sum(dtype=torch.int64) for piece in torch.split(bits, PIECE)]
            found.update(f"{name} {sum(map(int, sums))}\n".encode())
    return found.hexdigest()


@contextmanager
def frozen_left_out(module: Any) -> Iterator[None]:
    """Inside this context, a module's state omits frozen weights.

    DeepSpeed omits them itself, except for the second name of tied weights.
    """

    def leave_out(module: torch.nn.Module, state: dict[str, torch.Tensor], *rest: Any) -> None:
        for name in _frozen_names(module):
            state.pop(name, None)

    hook = module.register_state_dict_post_hook(leave_out)
    try:
        yield
    finally:
        hook.remove()


def _frozen_names(module: torch.nn.Module) -> set[str]:
    return {name for name, p in module.named_parameters(remove_duplicate=False) if not p.requires_grad}


def take_trained(src: dict[str, torch.Tensor], dst: torch.nn.Module) -> None:
    """Load a module's weights; only frozen ones may be missing."""
    missing, unexpected = dst.load_state_dict(src, strict=False)
    if wrong := [*unexpected, *sorted({*missing} - _frozen_names(dst))]:
        raise RuntimeError(f"the checkpoint is of another model: {', '.join(wrong[:3])}")

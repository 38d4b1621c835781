"""Frozen weights: checkpoints' states leave them out, and `--resume` takes them from the model."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from vtune.update.parts import own_share

PIECE = 1 << 24
"""Numbers summed at a time: torch copies them to eight bytes each."""


@torch.no_grad()
def checksum_of_frozen(model: Any) -> str:
    """A sum over all frozen weights, which reveals other weights in their place.

    Sums of the bits of each weight and not a hash, for speed: under adapters those are all weights of the
    base. The same numbers in another order within one weight are not seen. Of weights that ZeRO-3
    has split, each process takes its own share.
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
    """Within it, a module's state leaves out frozen weights.

    DeepSpeed leaves that out by itself, but for the second name of weights that are tied.
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

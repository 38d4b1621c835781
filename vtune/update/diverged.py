"""Whether trained weights are still usable, asked before a checkpoint may replace an older one."""

from typing import Any, NamedTuple

import torch

from vtune.update.parts import own_share

LARGEST = 1e9
"""Limit on the norm of a weight tensor; ours. Trained ones stay below a millionth of it, and products of much
larger ones overflow in the next forward pass."""


class Diverged(NamedTuple):
    """A weight tensor that has diverged."""

    place: int
    """Its place in the model's order."""
    name: str
    norm: float
    """NaN or infinite, or above `LARGEST`."""


@torch.no_grad()
def diverged(model: Any) -> Diverged | None:
    """The first trained weight, or share of one under ZeRO-3, that is not finite or far too large.

    Norms take one pass, without a copy, and a single wait for the GPU.
    """
    trained = [(name, own_share(p)) for name, p in model.named_parameters() if p.requires_grad]
    # Sums of squares in float32, which may overflow to infinity.
    norms = [torch.linalg.vector_norm(share).float() for _, share in trained]
    # With offloaded weights the small ones are still on the GPU.
    device = next((norm.device for norm in norms if norm.is_cuda), norms[0].device)
    numbers = torch.stack([norm.to(device) for norm in norms]).tolist()
    for place, ((name, _), norm) in enumerate(zip(trained, numbers, strict=True)):
        if not norm <= LARGEST:  # also if it is NaN
            return Diverged(place, name, norm)
    return None

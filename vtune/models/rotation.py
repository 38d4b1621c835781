"""Rotary embeddings applied to queries and keys, in few passes over memory."""

from typing import Any

import torch
from torch import Tensor


def signed(sine: Tensor) -> Tensor:
    """Sines (..., D) as `turned` takes them: those of the first half of the last axis negated."""
    first, second = sine.chunk(2, dim=-1)
    return torch.cat((-first, second), dim=-1)


def turned(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """States (..., D), whose two halves are the axes of each turn, turned by angles (..., D).

    Args:
        states: Queries or keys.
        cosine: Of the angles; both halves are the same.
        sine: Of the angles, `signed`.
    """
    return torch.addcmul(states * cosine, _swapped(states), sine)


def turned_with_gradient(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """The same; the gradient turns back, and nothing is kept for it but the angles."""
    out: Tensor = _Turned.apply(states, cosine, sine)  # type: ignore[no-untyped-call]
    return out


def _swapped(states: Tensor) -> Tensor:
    return states.roll(states.shape[-1] // 2, -1)


class _Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine, sine)
        return turned(states, cosine, sine)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        cosine, sine = ctx.saved_tensors
        return _swapped(gradient * sine).addcmul_(gradient, cosine), None, None

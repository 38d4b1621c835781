"""Rotary embeddings applied to queries and keys, in few passes over memory."""

from typing import Any

import torch
from torch import Tensor


def signed(sine: Tensor) -> Tensor:
    """Sines (..., D) in the form that `turned` takes: negated in the first half of the last axis."""
    first, second = sine.chunk(2, dim=-1)
    return torch.cat((-first, second), dim=-1)


def turned(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate states (..., D) by angles (..., D); the two halves of the last axis form the rotation planes.

    Args:
        states: Queries or keys.
        cosine: Of the angles; both halves are equal.
        sine: Of the angles, `signed`.
    """
    return torch.addcmul(states * cosine, _swapped(states), sine)


def turned_with_gradient(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Like `turned`, with gradient: it rotates back, and only the angles are kept for it."""
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

"""Fused modules: they compute what the stock ones do, in fewer passes over memory."""

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def use_fused_modules(model: nn.Module) -> None:
    """Replace the forward pass of a model's norms and of its patch embedding.

    Weights, names and hooks stay. In a `fused` family, values and gradients are the same up to rounding.
    """
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = MethodType(_norm, module)
        elif isinstance(module, nn.Conv3d):
            module.forward = MethodType(_patches, module)  # type: ignore[method-assign]


def _norm(self: Any, hidden_states: Tensor) -> Tensor:
    if hidden_states.is_cuda:
        return _fused_norm(hidden_states, self.weight, self.variance_epsilon)
    found: Tensor = _Norm.apply(hidden_states, self.weight, self.variance_epsilon)  # type: ignore[no-untyped-call]
    return found


def _fused_norm(states: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    # On a GPU one kernel each for forward and backward; on a CPU it is no better than separate operations.
    return functional.rms_norm(states, weight.shape, weight, epsilon)


def _scale(states: Tensor, epsilon: float) -> Tensor:
    """1 / root mean square of the last axis, float32, (..., 1)."""
    norm = torch.linalg.vector_norm(states, dim=-1, keepdim=True, dtype=torch.float32)
    scale: Tensor = norm.square_().div_(states.shape[-1]).add_(epsilon).rsqrt_()
    return scale


def _patches(self: Any, patches: Tensor) -> Tensor:
    # A patch is exactly as large as the window of the convolution, which is therefore a linear map.
    found = functional.linear(patches.flatten(1), self.weight.flatten(1), self.bias)
    # In the shape that an adapter's output is added to.
    return found[:, :, None, None, None]


class _Norm(torch.autograd.Function):
    """Root-mean-square normalisation of the last axis, times a weight, (..., D) and (D,)."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        scale = _scale(states, epsilon)
        ctx.save_for_backward(states, weight, scale)
        return (states * scale).to(states.dtype) * weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        states, weight, scale = ctx.saved_tensors
        wide, factor = gradient.float(), weight.float()
        normed = states * scale
        of_weight = wide * normed
        # The gradient of a state, minus its component along the state, which normalisation removes.
        along = (of_weight @ factor)[..., None].div_(-states.shape[-1])
        of_states = (wide * factor).addcmul_(normed, along).mul_(scale)
        return (
            of_states.to(states.dtype),
            of_weight.flatten(end_dim=-2).sum(0).to(weight.dtype),
            None,
        )

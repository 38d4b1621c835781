"""Gathered weights: an unsharded copy of the model with merged adapters, for rollouts and files."""

import copy
from typing import Any

import torch
from torch import nn


def without_weights(model: nn.Module) -> Any:
    """A copy of a model that holds no weights: every parameter is empty, buffers are copied.

    Made before adapters and DeepSpeed change the model, so it has the plain model's names and modules.
    """
    empty = {
        id(p): nn.Parameter(torch.empty(0, dtype=p.dtype, device=p.device), requires_grad=False)
        for p in model.parameters()
    }
    # deepcopy treats entries of this memo as already copied: parameters are replaced, and ties are kept.
    return copy.deepcopy(model, dict(empty)).eval()

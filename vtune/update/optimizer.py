"""The optimiser, which can skip a step and measures the gradient of each layer group."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import torch

from vtune.models.families.family import Family, Part
from vtune.update.parts import depths_of, layer_group


class HeldAdamW(torch.optim.AdamW):
    """AdamW that skips the step while `hold` is true, as if it had not been called.

    DeepSpeed passes it this process's shares of the gradients, by parameter group. Whatever the stage, this
    is the place where the norms of groups can be computed in one pass over the numbers.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], hold: Callable[[], bool], **settings: Any) -> None:
        super().__init__(groups, fused=True, **settings)
        self._hold = hold
        self.squares: dict[str, list[torch.Tensor]] = {}
        """Group -> squared norms of its gradients in this process, after clipping."""

    def step(self, closure: Any = None) -> Any:
        """One update, or none if `hold` is true."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    norm = torch.linalg.vector_norm(parameter.grad, dtype=torch.float32)
                    self.squares.setdefault(group["name"], []).append(norm.square())
        return None if self._hold() else super().step(closure)

    def measured(self) -> dict[str, float]:
        """Squared gradient norm of each group in this process."""
        return {name: float(torch.stack(found).sum()) for name, found in self.squares.items()}


def layer_groups(module: torch.nn.Module, family: Family) -> list[dict[str, Any]]:
    """Trainable parameters as the optimiser's groups, one per group of layers."""
    trained = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    depths = depths_of([name for name, _ in module.named_parameters()], family)
    groups: dict[str, list[torch.nn.Parameter]] = {}
    for name, parameter in trained:
        groups.setdefault(layer_group(name, depths, family), []).append(parameter)
    return [{"name": name, "params": parameters} for name, parameters in groups.items()]


def group_norms(norm: float, measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Gradient norms of groups and parts, from the overall norm and each process's values after clipping.

    Clipping scales all gradients alike, so each group's share of the total is the same as before clipping.
    """
    squares: dict[str, float] = {}
    for one in measured:
        for group, square in one.items():
            for name in {group, group.partition("_")[0]}:
                squares[name] = squares.get(name, 0.0) + square
    total = sum(squares.get(part, 0.0) for part in get_args(Part))
    if not math.isfinite(norm) or not total:
        return {}
    return {name: norm * math.sqrt(square / total) for name, square in squares.items()}

"""Loads the starting weights: whole on every GPU, or sharded by ZeRO-3 as they arrive."""

from collections.abc import Callable

import torch
from torch import nn

from vtune.models.pictures import PixelBudget
from vtune.models.policy import Policy, load_policy
from vtune.update.ranks import Ranks
from vtune.update.recipe import Update


def starting_policy(name: str, images: PixelBudget, update: Update, ranks: Ranks) -> Policy:
    """A policy in the form that `Trainer` takes.

    Under ZeRO-3 only the first process reads the weights, into host memory; the others load only names and
    shapes.

    Args:
        name: Folder or hub name of the model.
        images: Pixel budget of the largest pictures.
        update: The recipe's `update` section.
        ranks: This process and the others.
    """
    if update.zero_stage < 3:
        return load_policy(name, budget=images, dtype=update.dtype, device=ranks.device)
    host = torch.device("cpu")
    return load_policy(
        name,
        budget=images,
        dtype=update.dtype,
        device=host,
        weights=ranks.first,
        computes=ranks.device,
    )


def split_weights(model: nn.Module, ranks: Ranks, split: Callable[[nn.Parameter], None]) -> None:
    """Shard the weights of a model among all processes, one parameter after another, in place.

    Args:
        model: Values are taken from the first process; on the others the model may be on `meta`.
        ranks: This process and the others.
        split: Moves a parameter to the GPU, broadcasts the first process's values, and keeps this process's
            share; all processes call it for the same parameters in the same order.
    """
    done: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in done:  # otherwise it is tied
                done[id(parameter)] = (parameter, _material(parameter, ranks.device))
                split(done[id(parameter)][1])
            module._parameters[name] = done[id(parameter)][1]
    _share_buffers(model, ranks)


def _material(parameter: nn.Parameter, device: torch.device) -> nn.Parameter:
    """The parameter, or an empty one if it is not materialised."""
    if not parameter.is_meta:
        return parameter
    return nn.Parameter(torch.empty_like(parameter, device=device), requires_grad=parameter.requires_grad)


def _share_buffers(model: nn.Module, ranks: Ranks) -> None:
    """Broadcast the first process's buffers, which are small, to every process, on its device."""
    found = {name: buffer.cpu() for name, buffer in model.named_buffers()} if ranks.first else {}
    for name, buffer in ranks.gather(found)[0].items():
        owner, _, own = name.rpartition(".")
        model.get_submodule(owner)._buffers[own] = buffer.to(ranks.device)

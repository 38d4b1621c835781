"""The parts of a model, and freezing some of them."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from vtune.errors import RunFailed
from vtune.models.families.family import Family

_THIRDS = ("early", "middle", "late")


def layer_group(name: str, depths: Mapping[str, int], family: Family) -> str:
    """The group of layers whose gradients are measured together, by a parameter's name.

    Args:
        name: The parameter's name.
        depths: Number of layers of each part that has any: `vision` and `language`.
        family: The model's family.

    Returns:
        `vision_early`, `vision_middle`, `vision_late`, each a third of the layers, and the same for
        `language`; `vision_ends` and `language_ends` for everything around the layers (embeddings, last norm,
        output head); `connector`.
    """
    part = family.part_of(name)
    if part == "connector":
        return part
    found = family.layer.search(name)
    if found is None:
        return f"{part}_ends"
    # Decided by the middle of the layer, so that the two layers of a small model are an early and a late one.
    return f"{part}_{_THIRDS[(2 * int(found[1]) + 1) * 3 // (2 * depths[part])]}"


def depths_of(names: Sequence[str], family: Family) -> dict[str, int]:
    """Number of layers of each part that has any, from the parameters' names."""
    depths: dict[str, int] = {}
    for name in names:
        found, part = family.layer.search(name), family.part_of(name)
        if found is not None and part != "connector":
            depths[part] = max(depths.get(part, 0), int(found[1]) + 1)
    return depths


def freeze(model: Any, parts: Sequence[str], family: Family) -> dict[str, int]:
    """Freeze parts of a model and verify it; returns the number of trainable parameters in each part.

    Raises:
        RunFailed: If a frozen part still has trainable parameters, or nothing is left to train.
    """
    counts = {"vision": 0, "connector": 0, "language": 0}
    left = dict(counts)
    for name, parameter in model.named_parameters():
        part = family.part_of(name)
        parameter.requires_grad_(part not in parts)
        counts[part] += parameter.numel()
        left[part] += parameter.numel() * parameter.requires_grad
    for one in parts:
        if counts[one] == 0 or left[one]:
            raise RunFailed(
                f"freezing {one} had no effect ({counts[one]} parameters, {left[one]} still trainable)",
                fix="remove it from update.freeze, or correct the names of parts in the model's family",
            )
    if not sum(left.values()):
        raise RunFailed("update.freeze leaves nothing to train")
    return left


@torch.no_grad()
def fingerprints(model: Any, parts: Sequence[str], family: Family) -> dict[str, str]:
    """A hash of the weights of each of these parts.

    Under ZeRO-3, each process hashes its own share.
    """
    found = {part: hashlib.blake2b(digest_size=16) for part in parts}
    for name, parameter in model.named_parameters():
        part = family.part_of(name)
        if part in found:
            weights = own_share(parameter).contiguous()
            # numpy has no bfloat16: view the same bits as integers.
            bits = weights.view(torch.int16 if weights.element_size() == 2 else torch.int32)
            found[part].update(bits.cpu().numpy().data)
    return {part: one.hexdigest() for part, one in found.items()}


def own_share(parameter: Any) -> torch.Tensor:
    """A weight, or under ZeRO-3 this process's share of it, without the padding of the last share.

    DeepSpeed leaves the padding uninitialised, so it differs between processes.
    """
    if not hasattr(parameter, "ds_tensor"):
        whole: torch.Tensor = parameter.detach()
        return whole
    share: torch.Tensor = parameter.ds_tensor.detach()
    before = share.numel() * torch.distributed.get_rank(parameter.ds_process_group)
    return share[: max(0, parameter.ds_numel - before)]

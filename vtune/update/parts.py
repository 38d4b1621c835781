"""The parts of a Qwen-VL model, and leaving some of them as they are."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from vtune.errors import RunFailed
from vtune.update.recipe import Part


def part_of(name: str) -> Part:
    """The part that a parameter or module belongs to, by its name."""
    if ".visual." in name or name.startswith("visual."):
        return "connector" if "merger" in name else "vision"
    return "language"


_LAYER = re.compile(r"\b(?:layers|blocks)\.(\d+)\.")
_THIRDS = ("early", "middle", "late")


def layer_group(name: str, depths: Mapping[str, int]) -> str:
    """The group of layers whose gradients are measured together, by a parameter's name.

    Args:
        name: Of the parameter.
        depths: Layers of the parts that have any: `vision` and `language`.

    Returns:
        `vision_early`, `vision_middle`, `vision_late` and the same of `language`, each a third of the layers;
        `vision_ends` and `language_ends` for what lies around them (embeddings, last norm, output head);
        `connector`.
    """
    part = part_of(name)
    if part == "connector":
        return part
    found = _LAYER.search(name)
    if found is None:
        return f"{part}_ends"
    # By the middle of the layer, so that the two layers of a small model are an early and a late one.
    return f"{part}_{_THIRDS[(2 * int(found[1]) + 1) * 3 // (2 * depths[part])]}"


def depths_of(names: Sequence[str]) -> dict[str, int]:
    """Layers of each part that has any, from the names of the parameters."""
    depths: dict[str, int] = {}
    for name in names:
        found = _LAYER.search(name)
        if found is not None and part_of(name) != "connector":
            part = part_of(name)
            depths[part] = max(depths.get(part, 0), int(found[1]) + 1)
    return depths


def freeze(model: Any, parts: Sequence[str]) -> dict[str, int]:
    """Freeze parts of a Qwen-VL model and prove it; returns the trainable parameters of each part.

    Raises:
        RunFailed: If a frozen part still has trainable parameters, or nothing is left to train.
    """
    counts = {"vision": 0, "connector": 0, "language": 0}
    left = dict(counts)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(part_of(name) not in parts)
        counts[part_of(name)] += parameter.numel()
        left[part_of(name)] += parameter.numel() * parameter.requires_grad
    for part in parts:
        if counts[part] == 0 or left[part]:
            raise RunFailed(
                f"freezing {part} had no effect ({counts[part]} parameters, {left[part]} still trainable)",
                fix="remove it from update.freeze, or name the model's family",
            )
    if not sum(left.values()):
        raise RunFailed("update.freeze leaves nothing to train")
    return left


@torch.no_grad()
def fingerprints(model: Any, parts: Sequence[str]) -> dict[str, str]:
    """A hash of the weights of each of these parts.

    Of weights that ZeRO-3 has split, each process takes its own share.
    """
    found = {part: hashlib.blake2b(digest_size=16) for part in parts}
    for name, parameter in model.named_parameters():
        part = part_of(name)
        if part in found:
            weights = getattr(parameter, "ds_tensor", parameter).detach().contiguous()
            # numpy has no bfloat16: the same bits as integers.
            bits = weights.view(torch.int16 if weights.element_size() == 2 else torch.int32)
            found[part].update(bits.cpu().numpy())
    return {part: one.hexdigest() for part, one in found.items()}

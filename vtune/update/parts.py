"""The parts of a Qwen-VL model, and leaving some of them as they are."""

from collections.abc import Sequence
from typing import Any

from vtune.errors import RunFailed
from vtune.update.recipe import Part


def part_of(name: str) -> Part:
    """The part that a parameter or module belongs to, by its name."""
    if ".visual." in name or name.startswith("visual."):
        return "connector" if "merger" in name else "vision"
    return "language"


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

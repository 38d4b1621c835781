"""Operations that an update needs, from which model FLOPs utilisation (MFU) is computed."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import torch

from vtune.models.families.shape import Shape
from vtune.models.packed import Packed
from vtune.models.policy import Policy
from vtune.models.shape import shape_of
from vtune.update import rates
from vtune.update.ranks import Ranks
from vtune.update.recipe import Update


class Work(NamedTuple):
    """The amount of work in a forward pass."""

    tokens: float
    """Tokens that the language model reads."""
    pairs: float
    """(query, key) pairs of tokens that attend to one another, in one head of one layer."""
    patches: float
    """Patches that the vision tower reads."""
    scored: float
    """Tokens for which logits are computed."""


class UpdateFlops:
    """Operations of the forward and backward passes over packed rows.

    Only what the mathematics requires, as in Chowdhery et al. 2022 (PaLM, appendix B), except that a token
    attends only to the tokens before it: PaLM counts the whole row, twice as much, so its MFU is higher for
    long rows (by a third for 7B at 32k tokens). Recomputed activations do not count, nor does the vision
    tower's attention; shared prefixes count once, as they are computed once.

    Args:
        policy: The policy being trained.
        recipe: Tells whether only adapters are trained.
        trainable: Number of trainable parameters in each part.
        reference: Whether the starting weights score each row too.
    """

    def __init__(
        self, policy: Policy, recipe: Update, trainable: Mapping[str, int], *, reference: bool
    ) -> None:
        self._shape = shape_of(policy.model.config.to_dict())
        learning = [part for part, count in trainable.items() if count]
        self._passes = passes_of(learning, adapters=recipe.lora is not None)
        self._reference = reference

    def of(self, packed: Packed, scored: int) -> float:
        """Operations for one row, of which `scored` tokens are scored."""
        patches = 0 if packed.pictures is None else len(packed.pictures.levels)
        return self(Work(packed.input_ids.shape[1], attended(packed), patches, scored))

    def __call__(self, work: Work) -> float:
        """Operations for any amount of work."""
        forward = forward_flops(self._shape, work)
        return sum(flops * (self._passes[part] + self._reference) for part, flops in forward.items())


def forward_flops(shape: Shape, work: Work) -> dict[str, float]:
    """Operations of a forward pass by part; a multiply-add counts as two."""
    parameters = shape.parameters
    body = parameters["language"] - shape.head
    attention = 4 * shape.layers * shape.query * work.pairs
    return {
        "vision": 2 * work.patches * parameters["vision"],
        "connector": 2 * work.patches / shape.merge**2 * parameters["connector"],
        "language": 2 * work.tokens * body + attention + 2 * work.scored * shape.vocab * shape.hidden,
    }


def attended(packed: Packed) -> float:
    """(query, key) pairs of a packed row: each token sees itself and the tokens before it."""
    lengths = packed.layout.lengths
    return sum(
        own * (own + 1) / 2 + own * sum(lengths[number] for number in above)
        for own, above in zip(lengths, packed.layout.above, strict=True)
    )


def passes_of(learning: Collection[str], *, adapters: bool) -> dict[str, int]:
    """The cost of a training pass in forward passes, by part.

    The forward pass itself; one more for the gradient of a part's input, if something in it or below it is
    trained; and one for the gradient of its weights.

    Args:
        learning: Parts in which something is trained; with adapters, only the parts that have one.
        adapters: Whether only adapters are trained; their own products are ignored.
    """
    parts = ("vision", "connector", "language")
    passes, below = {}, False
    for part in parts:
        below = below or part in learning
        passes[part] = 1 + below + (part in learning and not adapters)
    return passes


def peak_flops(ranks: Ranks, recipe: Update) -> float | None:
    """Peak operations per second of all GPUs of a run; None on a CPU, for a GPU that is not listed in
    `vtune.update.rates`, and for any dtype other than bfloat16, for which those peaks are given.
    """
    if ranks.device.type != "cuda" or recipe.dtype != "bfloat16":
        return None
    memory_gb = torch.cuda.get_device_properties(ranks.device).total_memory / 1e9
    device = rates.device_named(torch.cuda.get_device_name(ranks.device), memory_gb)
    return None if device is None else device.flops * ranks.world

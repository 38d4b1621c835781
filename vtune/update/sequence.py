"""Which processes share rows (sequence parallelism), and whether a model supports it."""

from collections.abc import Sequence
from itertools import chain

import torch

from vtune.errors import RecipeError
from vtune.models.families.shape import Shape
from vtune.models.sequence_parallel import SequenceGroup
from vtune.update.batch import Item
from vtune.update.ranks import COLLECTIVES, MEETINGS, Ranks


def check_sequence_parallel(size: int, world: int, shape: Shape | None) -> None:
    """Check that this many processes can share rows.

    Args:
        size: `update.sequence_parallel`.
        world: Number of training processes.
        shape: The model's shape; None if it is not known.

    Raises:
        RecipeError: If the processes, or the attention heads, cannot be divided into such groups.
    """
    if world % size:
        raise RecipeError(
            f"{world} processes do not split into groups of update.sequence_parallel {size}",
            fix="choose one that divides the processes of each machine (--gpus)",
        )
    if shape is None or size in possible_sizes(shape):
        return
    wrong = [f"{shape.heads} attention heads"] if shape.heads % size else []
    if shape.kv_heads % size and size % shape.kv_heads:
        wrong.append(f"{shape.kv_heads} key heads")
    raise RecipeError(
        f"update.sequence_parallel {size} does not divide the model's {' and '.join(wrong)}",
        fix=f"this model takes {', '.join(map(str, possible_sizes(shape)))}",
    )


def possible_sizes(shape: Shape) -> list[int]:
    """The group sizes that a model allows: each process gets equally many heads, with their key heads."""
    return [
        size
        for size in range(1, shape.heads + 1)
        if not shape.heads % size and not (shape.kv_heads % size and size % shape.kv_heads)
    ]


def sequence_group(ranks: Ranks, size: int) -> SequenceGroup | None:
    """The group of neighbouring ranks of this process; None if each process has its own rows.

    All processes call it together.
    """
    if size == 1:
        return None
    mine: SequenceGroup | None = None
    for first in range(0, ranks.world, size):
        members = list(range(first, first + size))
        tensors = torch.distributed.new_group(members, timeout=COLLECTIVES)
        objects = torch.distributed.new_group(members, backend="gloo", timeout=MEETINGS)
        if ranks.rank in members:
            mine = SequenceGroup(ranks.rank - first, size, tensors, objects)
    return mine


def shared_items(items: Sequence[Item], group: SequenceGroup | None) -> list[Item]:
    """The items of all processes in a group, in the same order on each of them."""
    return list(items) if group is None else list(chain.from_iterable(group.gather(list(items))))

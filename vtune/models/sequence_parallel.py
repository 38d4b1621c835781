"""Sequence parallelism: one row over several processes, as in DeepSpeed-Ulysses (arXiv:2309.14509).

Each process holds a stretch of a row's tokens. They exchange states only for attention, during which each has
all tokens and some of the heads. So what attention sees of a row (a tree of segments, see
`vtune.models.attention`) is unchanged, and positions travel with their tokens. A picture is encoded by one
process and sent to where it is shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from vtune.models.families import family_of_model

if TYPE_CHECKING:
    from vtune.models.batch import Pictures

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """The processes that share rows."""

    index: int
    """Index of this process in the group."""
    size: int
    tensors: Any
    """Their process group for tensors."""
    objects: Any
    """Their process group for Python objects."""

    def gather(self, value: T) -> list[T]:
        """The value of each process, in order, on all of them."""
        found: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(found, value, group=self.objects)
        return found


@dataclass(frozen=True, slots=True)
class Stretches:
    """A row of T tokens divided over the processes of a group, one stretch each, in order."""

    group: SequenceGroup
    lengths: tuple[int, ...]
    """Tokens of each stretch; they add up to T."""

    @property
    def mine(self) -> slice:
        """The stretch of this process."""
        start = sum(self.lengths[: self.group.index])
        return slice(start, start + self.lengths[self.group.index])


def stretches(tokens: int, group: SequenceGroup) -> Stretches:
    """A row of this many tokens, in stretches of nearly equal length."""
    return Stretches(group, tuple(even(tokens, group.size)))


def even(count: int, parts: int) -> list[int]:
    """Split a count into this many nearly equal parts."""
    return [count // parts + (number < count % parts) for number in range(parts)]


def by_heads(query: Tensor, key: Tensor, value: Tensor, row: Stretches) -> tuple[Tensor, Tensor, Tensor]:
    """From this process's tokens with all heads to all tokens with this process's heads.

    Args:
        query: (1, t, heads, D).
        key: (1, t, H, D).
        value: (1, t, H, D).
        row: How the T tokens are divided.

    Returns:
        (1, T, heads / processes, D), and twice (1, T, H / processes, D), with at least one head.
    """
    size, length = row.group.size, query.shape[1]
    # If there are fewer key heads than processes, each goes to all processes whose query heads attend to it.
    again = max(1, size // key.shape[2])
    if again > 1:
        key, value = (states.repeat_interleave(again, dim=2) for states in (key, value))
    # One exchange for all three.
    parts = [
        # Not -1, which is ambiguous if there are no tokens.
        states[0].reshape(length, size, states.shape[2] // size, states.shape[3])
        for states in (query, key, value)
    ]
    sent = torch.cat(parts, dim=2).transpose(0, 1).flatten(0, 1)
    got = _exchanged(sent, [length] * size, row.lengths, row.group)
    query, key, value = torch.split(got[None], [part.shape[2] for part in parts], dim=2)
    return query, key, value


def by_tokens(states: Tensor, row: Stretches) -> Tensor:
    """From all tokens with this process's heads, (1, T, heads / processes, D), to its tokens with all heads,
    (1, t, heads, D).
    """
    size = row.group.size
    length = row.lengths[row.group.index]
    got = _exchanged(states[0], row.lengths, [length] * size, row.group)
    return got.reshape(size, length, *got.shape[1:]).transpose(0, 1).flatten(1, 2)[None]


def fetched(
    states: Tensor, owners: Tensor, places: Tensor, counts: Sequence[int], group: SequenceGroup
) -> Tensor:
    """The states that this process needs, from all processes, with gradient to where they are.

    Args:
        states: (n, …): the states that this process has.
        owners: int64 on the CPU, (N,): for each requested state, the process that has it.
        places: int64 on the CPU, (N,): its index there.
        counts: How many of the N each process requests: the first process the first ones, and so on.
        group: The processes; all call it with the same `owners`, `places` and `counts`.

    Returns:
        (counts[index], …).
    """
    who, where = torch.split(owners, list(counts)), torch.split(places, list(counts))
    asked = [place[owner == group.index] for owner, place in zip(who, where, strict=True)]
    mine = who[group.index]
    received = torch.bincount(mine, minlength=group.size).tolist()
    sent = states.index_select(0, torch.cat(asked).to(states.device))
    got = _exchanged(sent, [len(one) for one in asked], received, group)
    # They arrive ordered by process.
    order = torch.empty_like(mine)
    order[torch.argsort(mine, stable=True)] = torch.arange(len(mine))
    return got.index_select(0, order.to(states.device))


def together(values: Tensor, counts: Sequence[int], group: SequenceGroup) -> Tensor:
    """The values of all processes, on each of them; only this process's values get gradient.

    For results that all processes use in the same way: their gradients then add up to that of one process.

    Args:
        values: (counts[index],): this process's values.
        counts: Number of values of each process.
        group: The processes.
    """
    with torch.no_grad():
        found = _exchanged(values.repeat(group.size), [len(values)] * group.size, counts, group)
    pieces = list(torch.split(found, list(counts)))
    pieces[group.index] = values
    return torch.cat(pieces)


def shared_features(
    model: Any, pictures: "Pictures | None", input_ids: Tensor, row: Stretches
) -> dict[str, Any] | None:
    """Features of the pictures in this process's stretch; each distinct picture is encoded by one process.

    Args:
        model: A transformers `…ForConditionalGeneration`.
        pictures: Pictures of the whole row.
        input_ids: Ids of the whole row, (1, T).
        row: Its stretches.

    Returns:
        As `vtune.models.batch.image_features` returns them.
    """
    if pictures is None:
        return None
    group = row.group
    # Computed before the tower's work is queued, since this synchronises with the GPU.
    counts = placeholders(input_ids, model.config.image_token_id, row)
    sizes = [prod(grid) for grid in pictures.grids.tolist()]
    owners = spread_out(sizes, group.size)
    mine = [number for number, owner in enumerate(owners) if owner == group.index]
    # All processes must use all weights: one without a picture encodes the smallest, and nobody requests it.
    mine = mine or [sizes.index(min(sizes))]
    out = encoded(model, pictures, mine, sizes)
    layered = family_of_model(model).layered_features
    layers = [torch.cat(list(one)) for one in (out.pooler_output, *(out[layered] if layered else ()))]
    merged = sizes[mine[0]] // len(out.pooler_output[0])  # patches per token
    tokens = [size // merged for size in sizes]
    # Where each picture's tokens begin on its owner.
    begins, filled = [], [0] * group.size
    for owner, count in zip(owners, tokens, strict=True):
        begins.append(filled[owner])
        filled[owner] += count
    who = torch.cat([torch.full((tokens[number],), owners[number]) for number in pictures.order])
    where = torch.cat([torch.arange(tokens[number]) + begins[number] for number in pictures.order])
    got = fetched(torch.cat(layers, dim=1), who, where, counts, group)
    first, *others = torch.split(got, layers[0].shape[1], dim=1)
    out.pooler_output = [first]
    if layered:
        out[layered] = [[layer] for layer in others]
    return {"image": out}


def placeholders(input_ids: Tensor, image_id: int, row: Stretches) -> list[int]:
    """Number of picture tokens in each stretch of a row, (1, T)."""
    found: list[int] = torch.stack(
        [part.sum() for part in torch.split(input_ids[0] == image_id, list(row.lengths))]
    ).tolist()
    return found


def encoded(model: Any, pictures: "Pictures", numbers: Sequence[int], sizes: Sequence[int]) -> Any:
    """The vision tower's output for some of the pictures, in the order of `numbers`."""
    parts = torch.split(pictures.levels, list(sizes))
    patches = pictures.made(torch.cat([parts[number] for number in numbers]))
    return model.get_image_features(patches, pictures.grids[list(numbers)], return_dict=True)


def spread_out(sizes: Sequence[int], parts: int) -> list[int]:
    """Assign each picture to one of the processes so that they have about equally many patches: the largest
    first, each to the process with the fewest so far.
    """
    loads, owners = [0] * parts, [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        owners[number] = loads.index(min(loads))
        loads[owners[number]] += sizes[number]
    return owners


def _exchanged(states: Tensor, sent: Sequence[int], received: Sequence[int], group: SequenceGroup) -> Tensor:
    """An all-to-all exchange with gradient; `sent` and `received` count the states per process."""
    found: Tensor = _Exchange.apply(states, list(sent), list(received), group.tensors)  # type: ignore[no-untyped-call]
    return found


class _Exchange(torch.autograd.Function):
    """`all_to_all_single` along the first axis."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, sent: list[int], received: list[int], group: Any) -> Tensor:
        ctx.sizes, ctx.group = (sent, received), group
        out = states.new_empty((sum(received), *states.shape[1:]))
        torch.distributed.all_to_all_single(out, states.contiguous(), received, sent, group=group)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        sent, received = ctx.sizes
        out = gradient.new_empty((sum(sent), *gradient.shape[1:]))
        torch.distributed.all_to_all_single(out, gradient.contiguous(), sent, received, group=ctx.group)
        return out, None, None, None

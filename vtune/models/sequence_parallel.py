"""Sequence parallelism: one row over several processes, as in DeepSpeed-Ulysses (arXiv:2309.14509).

Each process holds a stretch of a row's tokens. For attention alone all of them exchange: each then has all
tokens, and some of the heads. So what attention sees of a row (a tree of segments, see
`vtune.models.attention`) stays as it is, and positions travel with their tokens. A picture is encoded by one
process and sent where it is shown.
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
    """Of this process among them."""
    size: int
    tensors: Any
    """Their process group for what is computed with."""
    objects: Any
    """Their process group for Python objects."""

    def gather(self, value: T) -> list[T]:
        """The value of each process, in order, in each of them."""
        found: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(found, value, group=self.objects)
        return found


@dataclass(frozen=True, slots=True)
class Stretches:
    """A row of T tokens over the processes of a group, one stretch each, in order."""

    group: SequenceGroup
    lengths: tuple[int, ...]
    """Of each stretch; T together."""

    @property
    def mine(self) -> slice:
        """The stretch of this process."""
        start = sum(self.lengths[: self.group.index])
        return slice(start, start + self.lengths[self.group.index])


def stretches(tokens: int, group: SequenceGroup) -> Stretches:
    """A row of this many tokens in stretches of like length."""
    return Stretches(group, tuple(even(tokens, group.size)))


def even(count: int, parts: int) -> list[int]:
    """Sizes of this many parts, as alike as can be."""
    return [count // parts + (number < count % parts) for number in range(parts)]


def by_heads(query: Tensor, key: Tensor, value: Tensor, row: Stretches) -> tuple[Tensor, Tensor, Tensor]:
    """From this process's tokens with all heads to all tokens with its heads.

    Args:
        query: (1, t, heads, D).
        key: (1, t, H, D).
        value: (1, t, H, D).
        row: Where the t tokens lie.

    Returns:
        (1, T, heads / processes, D), and twice (1, T, H / processes, D), one head at least.
    """
    size, length = row.group.size, query.shape[1]
    # Fewer key heads than processes: each goes to all whose query heads attend to it.
    again = max(1, size // key.shape[2])
    if again > 1:
        key, value = (states.repeat_interleave(again, dim=2) for states in (key, value))
    # One exchange for all three.
    parts = [
        # Not -1, of which nobody could tell what it is where there is no token.
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
    """What this process wants of the states of all, with gradient to where they are.

    Args:
        states: (n, …): those that this process has.
        owners: int64 on the CPU, (N,): the process that has each state which any process wants.
        places: int64 on the CPU, (N,): where it has it.
        counts: How many of the N each process wants: the first ones the first process, and so on.
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
    # They come process by process.
    order = torch.empty_like(mine)
    order[torch.argsort(mine, stable=True)] = torch.arange(len(mine))
    return got.index_select(0, order.to(states.device))


def together(values: Tensor, counts: Sequence[int], group: SequenceGroup) -> Tensor:
    """The values of all processes, in each of them; gradient goes to those of this process alone.

    For what all of them go on to compute alike: the gradients of the processes then add up to that of one.

    Args:
        values: (counts[index],): of this process.
        counts: How many each process has.
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
        pictures: Of the whole row.
        input_ids: Of the whole row, (1, T).
        row: Its stretches.

    Returns:
        As `vtune.models.batch.image_features`.
    """
    if pictures is None:
        return None
    group = row.group
    # Asked for before the tower has work: a GPU is waited for.
    counts = placeholders(input_ids, model.config.image_token_id, row)
    sizes = [prod(grid) for grid in pictures.grids.tolist()]
    owners = spread_out(sizes, group.size)
    mine = [number for number, owner in enumerate(owners) if owner == group.index]
    # All processes have to reach all weights: without a picture, the smallest, and nobody asks for it.
    mine = mine or [sizes.index(min(sizes))]
    out = encoded(model, pictures, mine, sizes)
    layered = family_of_model(model).layered_features
    layers = [torch.cat(list(one)) for one in (out.pooler_output, *(out[layered] if layered else ()))]
    merged = sizes[mine[0]] // len(out.pooler_output[0])  # patches of a token
    tokens = [size // merged for size in sizes]
    # Where each picture's tokens lie at its owner.
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
    """How many tokens of pictures are in each stretch of a row, (1, T)."""
    found: list[int] = torch.stack(
        [part.sum() for part in torch.split(input_ids[0] == image_id, list(row.lengths))]
    ).tolist()
    return found


def encoded(model: Any, pictures: "Pictures", numbers: Sequence[int], sizes: Sequence[int]) -> Any:
    """What the vision tower makes of some of the pictures, in order of their numbers."""
    parts = torch.split(pictures.levels, list(sizes))
    patches = pictures.made(torch.cat([parts[number] for number in numbers]))
    return model.get_image_features(patches, pictures.grids[list(numbers)], return_dict=True)


def spread_out(sizes: Sequence[int], parts: int) -> list[int]:
    """Which of this many processes takes each picture, so that they have about as many patches: the largest
    first, each to the one that has least.
    """
    loads, owners = [0] * parts, [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        owners[number] = loads.index(min(loads))
        loads[owners[number]] += sizes[number]
    return owners


def _exchanged(states: Tensor, sent: Sequence[int], received: Sequence[int], group: SequenceGroup) -> Tensor:
    """An exchange of all with all: so many states to each process, so many from each; with gradient."""
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

"""`torch.nn.attention.varlen.varlen_attn` as torch documents it, on any device, stretch by stretch."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

KERNEL = "torch.nn.attention.varlen.varlen_attn"
"""The function that it replaces."""

Last = Callable[[int, int], int]
"""For a stretch with this many queries and keys: the index of the last key that its first query sees."""


def bottom_right(own: int, seen: int) -> int:
    """The last query sees all keys."""
    return seen - own


def top_left(_own: int, _seen: int) -> int:
    """The first query sees only one key."""
    return 0


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    begins: Tensor,
    key_begins: Tensor,
    longest: int,
    longest_key: int,
    *,
    scale: float,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    last: Last = bottom_right,
) -> Tensor:
    """Attention output (T, heads, D) for queries (T, heads, D), keys and values (S, H, D)."""
    lengths, key_lengths = (_lengths(one) for one in (begins, key_begins))
    assert (sum(lengths), sum(key_lengths)) == (len(query), len(key))
    assert (longest, longest_key) == (max(lengths), max(key_lengths))
    assert all(states.stride(-1) == 1 for states in (query, key, value)), "the kernel takes no other"
    assert enable_gqa or query.shape[1] == key.shape[1]
    assert window_size in ((-1, -1), (-1, 0))
    queries = torch.split(query, lengths)
    keys, values = (torch.split(states, key_lengths) for states in (key, value))
    found = []
    for one in zip(queries, keys, values, strict=True):
        own, seen = len(one[0]), len(one[1])
        mask = torch.ones(own, seen, dtype=torch.bool, device=query.device)
        if window_size == (-1, 0):
            mask = mask.tril(last(own, seen))
        heads = [states.transpose(0, 1) for states in one]
        part = scaled_dot_product_attention(
            heads[0], heads[1], heads[2], attn_mask=mask, scale=scale, enable_gqa=enable_gqa
        )
        found.append(part.transpose(0, 1))
    return torch.cat(found)


def _lengths(begins: Tensor) -> list[int]:
    assert begins.dtype == torch.int32, "the kernel takes no other"
    found: list[int] = begins.diff().tolist()
    return found

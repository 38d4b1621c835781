"""Attention within a row that holds a tree of segments: each sees itself and its ancestors.

Time grows with the number of token pairs that see each other, and memory with the number of tokens that
segments see; nothing is as large as row x row. One call per segment works everywhere; a single call for all
of them needs a GPU kernel (see `vtune.models.row_attention`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature
from itertools import accumulate
from types import MethodType
from typing import Any

import torch
from torch.nn.functional import embedding, scaled_dot_product_attention

from vtune.models.decoding import KeyValues
from vtune.models.rotation import signed, turned_with_gradient
from vtune.models.sequence_parallel import Stretches, by_heads, by_tokens
from vtune.models.tree import Segment

ONE_CALL = "vtune_one_call"
"""Attribute of an attention module: whether all segments of a row are computed in one call."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The tokens that each segment of a row sees, its own last; one segment after another."""

    places: torch.Tensor
    """Their indices in the row: int64, (S,); a token appears once for each segment that sees it."""
    begins: torch.Tensor
    """int32, (segments + 1,): where each segment begins in the row, and T."""
    seen_begins: torch.Tensor
    """int32, (segments + 1,): where the tokens that each segment sees begin in `places`, and S."""
    longest: int
    """Tokens of the longest segment."""
    most: int
    """Largest number of tokens that a segment sees."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The segments of a row in order, and what each one sees before itself."""

    lengths: list[int]
    above: list[tuple[int, ...]]
    masks: list[torch.Tensor | None]
    """Masks added to the scores where they are not plainly causal: float32, (own, above + own)."""
    seen: Seen


def layout(segments: Sequence[Segment], device: torch.device) -> Layout:
    """The layout of consecutive segments in a row."""
    lengths = [segment.end - segment.start for segment in segments]
    shapes = [
        (own, sum(lengths[number] for number in segment.above) + own)
        for segment, own in zip(segments, lengths, strict=True)
    ]
    # Segments of the same shape, e.g. rollouts cut at the same length, share a mask.
    masks = {(own, seen): _mask(own, seen, device) if seen > own else None for own, seen in set(shapes)}
    above = [segment.above for segment in segments]
    return Layout(lengths, above, [masks[shape] for shape in shapes], _seen(lengths, above, device))


def _seen(lengths: list[int], above: list[tuple[int, ...]], device: torch.device) -> Seen:
    own = torch.split(torch.arange(sum(lengths)), lengths)
    places = [torch.cat([own[n] for n in (*before, number)]) for number, before in enumerate(above)]
    sizes = [len(one) for one in places]
    begins, seen_begins = (
        torch.tensor([0, *accumulate(counts)], dtype=torch.int32, device=device)
        for counts in (lengths, sizes)
    )
    return Seen(torch.cat(places).to(device), begins, seen_begins, max(lengths), max(sizes))


def _mask(own: int, seen: int, device: torch.device) -> torch.Tensor:
    if device.type == "cuda":
        # Imported here, since it loads torch's compiler, which would add a second to the start of each
        # command.
        from torch.nn.attention.bias import causal_lower_right

        # A symbolic mask that the flash kernel understands; it is never materialised.
        return causal_lower_right(own, seen)
    return torch.full((own, seen), -torch.inf, device=device).triu(1 + seen - own)


def _as_dtype(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    # A symbolic mask has no numbers to convert, and would lose its meaning.
    return mask if mask is None or type(mask) is not torch.Tensor else mask.to(dtype)


def use_tree_attention(model: Any) -> None:
    """Make a model's language model accept rows with a `Layout`, and fill `KeyValues` from them.

    A forward pass without a layout is unchanged, as are weights, names and hooks. Attention makes one call
    per segment, or as `vtune.models.row_attention` has chosen.
    """
    for layer in model.model.language_model.layers:
        layer.self_attn.forward = MethodType(_forward, layer.self_attn)


def _forward(
    self: Any,
    hidden_states: torch.Tensor,
    position_embeddings: tuple[torch.Tensor, torch.Tensor],
    *,
    layout: Layout | None = None,
    kept: KeyValues | None = None,
    stretches: Stretches | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, Any]:
    """Attention with the interface of a transformers layer: states (1, T, hidden) in and out.

    With `stretches`, the states are those of this process's tokens only, from the row described by `layout`.
    """
    if layout is None:
        stock: tuple[torch.Tensor, Any] = type(self).forward(
            self, hidden_states, position_embeddings=position_embeddings, **rest
        )
        return stock
    # A row with fewer tokens than processes leaves none here, so heads are counted by the width alone.
    query, key, value = (
        of(hidden_states).unflatten(-1, (-1, self.head_dim)) for of in (self.q_proj, self.k_proj, self.v_proj)
    )
    if hasattr(self, "q_norm"):
        query, key = self.q_norm(query), self.k_norm(key)
    cosine, sine = (part[:, :, None] for part in position_embeddings)
    sine = signed(sine)
    query, key = (turned_with_gradient(states, cosine, sine) for states in (query, key))
    if stretches is not None:
        query, key, value = by_heads(query, key, value, stretches)
    query, key, value = (states.transpose(1, 2) for states in (query, key, value))
    if kept is not None:
        kept.keep(key, value)
    attend = attention_in_one_call if getattr(self, ONE_CALL, False) else tree_attention
    found = attend(query, key, value, layout, scaling=self.scaling)
    if stretches is not None:
        found = by_tokens(found, stretches)
    return self.o_proj(found.flatten(2)), None


def tree_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: Layout, *, scaling: float
) -> torch.Tensor:
    """Attention over a row of segments, one call per segment.

    Args:
        query: (1, heads, T, D).
        key: (1, H, T, D).
        value: (1, H, T, D).
        layout: The row's layout.
        scaling: Factor for the scores.

    Returns:
        (1, T, heads, D).
    """
    pieces = [torch.split(states, layout.lengths, dim=2) for states in (query, key, value)]
    found = []
    for number, (above, mask) in enumerate(zip(layout.above, layout.masks, strict=True)):
        seen = (*above, number)
        keys, values = (
            torch.cat([states[n] for n in seen], dim=2) if above else states[number] for states in pieces[1:]
        )
        found.append(
            scaled_dot_product_attention(
                pieces[0][number],
                keys,
                values,
                attn_mask=_as_dtype(mask, query.dtype),
                is_causal=mask is None,
                scale=scaling,
                enable_gqa=True,
            )
        )
    return torch.cat(found, dim=2).transpose(1, 2)


def attention_in_one_call(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: Layout, *, scaling: float
) -> torch.Tensor:
    """Like `tree_attention`, but in one call to a GPU kernel; bfloat16 or float16."""
    # Imported here, since it loads torch's compiler, which would add a second to the start of each command.
    from torch.nn.attention.varlen import varlen_attn

    attend: Any = varlen_attn
    seen = layout.seen
    # Gathered with `embedding`, whose gradient is summed in float32 and in a fixed order per token. The
    # gradient of `index_select` uses atomic additions in bfloat16.
    keys, values = (
        embedding(seen.places, states[0].transpose(0, 1).flatten(1)).view(-1, *states.shape[1::2])
        for states in (key, value)
    )
    found = attend(
        query[0].transpose(0, 1),
        keys,
        values,
        seen.begins,
        seen.seen_begins,
        seen.longest,
        seen.most,
        scale=scaling,
        window_size=(-1, 0),  # causal: the last query of a segment sees its last key
        **_grouped(attend),
    )
    out: torch.Tensor = found[None]
    return out


@cache
def _grouped(kernel: Callable[..., Any]) -> dict[str, bool]:
    """The argument for query heads that share key heads; torch 2.11 allows it without one."""
    return {"enable_gqa": True} if "enable_gqa" in signature(kernel).parameters else {}

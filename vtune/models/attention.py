"""Attention within one row that holds a tree of segments: each sees itself and what is above it.

Time and memory grow with the pairs of tokens that see each other; nothing is as large as row x row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from vtune.models.decoding import KeyValues
from vtune.models.rotation import signed, turned_with_gradient
from vtune.models.sequence_parallel import Stretches, by_heads, by_tokens
from vtune.models.tree import Segment


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the segments of a row lie, in order, and what each sees before itself."""

    lengths: list[int]
    above: list[tuple[int, ...]]
    masks: list[torch.Tensor | None]
    """What is added to the scores where they are not plainly causal: float32, (own, above + own)."""


def layout(segments: Sequence[Segment], device: torch.device) -> Layout:
    """The layout of segments that follow one another in a row."""
    lengths = [segment.end - segment.start for segment in segments]
    shapes = [
        (own, sum(lengths[number] for number in segment.above) + own)
        for segment, own in zip(segments, lengths, strict=True)
    ]
    # Rollouts that were cut at the same length share a mask.
    masks = {(own, seen): _mask(own, seen, device) if seen > own else None for own, seen in shapes}
    return Layout(lengths, [segment.above for segment in segments], [masks[shape] for shape in shapes])


def _mask(own: int, seen: int, device: torch.device) -> torch.Tensor:
    if device.type == "cuda":
        # Here, for it loads torch's compiler: a second, at each start of a command.
        from torch.nn.attention.bias import causal_lower_right

        # A name for the shape, which the flash kernel knows; it is never written out.
        return causal_lower_right(own, seen)
    return torch.full((own, seen), -torch.inf, device=device).triu(1 + seen - own)


def _as_dtype(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    # The name of a shape has no numbers, and would lose what it says.
    return mask if mask is None or type(mask) is not torch.Tensor else mask.to(dtype)


def use_tree_attention(model: Any) -> None:
    """Let a model's language model take rows with a `Layout`, and fill `KeyValues` from them.

    A forward without one goes as before. Weights, names and hooks stay.
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
    """Attention as a layer of transformers calls it: states (1, T, hidden) in and out.

    With `stretches` those of this process's tokens alone, of the row that `layout` is of.
    """
    if layout is None:
        stock: tuple[torch.Tensor, Any] = type(self).forward(
            self, hidden_states, position_embeddings=position_embeddings, **rest
        )
        return stock
    heads = (*hidden_states.shape[:-1], -1, self.head_dim)
    query, key, value = (of(hidden_states).view(heads) for of in (self.q_proj, self.k_proj, self.v_proj))
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
    found = tree_attention(query, key, value, layout, scaling=self.scaling)
    if stretches is not None:
        found = by_tokens(found, stretches)
    return self.o_proj(found.flatten(2)), None


def tree_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: Layout, *, scaling: float
) -> torch.Tensor:
    """Attention over a row of segments.

    Args:
        query: (1, heads, T, D).
        key: (1, H, T, D).
        value: (1, H, T, D).
        layout: Of the row.
        scaling: Of the scores.

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

"""Attention within one row that holds a tree of segments: each sees itself and what is above it.

Time and memory grow with the pairs of tokens that see each other; nothing is as large as row x row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention.bias import CausalBias, causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from vtune.models.decoding import KeyValues
from vtune.models.tree import Segment

NAME = "vtune_tree"
"""What the attention is called among those of transformers."""


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
        # A name for the shape, which the flash kernel knows; it is never written out.
        return causal_lower_right(own, seen)
    return torch.full((own, seen), -torch.inf, device=device).triu(1 + seen - own)


def _as_dtype(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    # The name of a shape has no numbers, and would lose what it says.
    return mask if mask is None or isinstance(mask, CausalBias) else mask.to(dtype)


def use_tree_attention(model: Any) -> None:
    """Let the language model of a Qwen-VL model take rows with a `Layout`, and fill `KeyValues` from them.

    A forward with neither goes as before.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, _tree_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation({"text_config": NAME})


def _tree_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    layout: Layout | None = None,
    kept: KeyValues | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers calls it; query (B, H, T, D), result (B, T, H, D)."""
    if kept is not None:
        kept.keep(key, value)
    if layout is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        out, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **rest)
        return out, None
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
    return torch.cat(found, dim=2).transpose(1, 2), None

"""Attention within one row that holds a tree of segments: each sees itself and what is above it.

Time and memory grow with the pairs of tokens that see each other; nothing is as large as row x row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from vtune.models.tree import Segment

NAME = "vtune_tree"
"""What the attention is called among those of transformers."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the segments of a row lie, in order, and what each sees before itself."""

    lengths: list[int]
    above: tuple[tuple[int, ...], ...]
    masks: tuple[torch.Tensor | None, ...]
    """Which of the keys each query sees, where it is not plainly causal: bool, (own, above + own)."""


def layout(segments: Sequence[Segment], device: torch.device) -> Layout:
    """The layout of segments that follow one another in a row."""
    lengths = [segment.end - segment.start for segment in segments]
    masks = []
    for segment, own in zip(segments, lengths, strict=True):
        before = sum(lengths[number] for number in segment.above)
        masks.append(_mask(own, before + own, device) if before else None)
    return Layout(lengths, tuple(segment.above for segment in segments), tuple(masks))


def _mask(own: int, seen: int, device: torch.device) -> torch.Tensor:
    if device.type == "cuda":
        # A name for the shape, which the flash kernel knows; it is never written out.
        return causal_lower_right(own, seen)
    return torch.ones(own, seen, dtype=torch.bool, device=device).tril(seen - own)


def use_tree_attention(model: Any) -> None:
    """Let the language model of a Qwen-VL model take rows with a `Layout`; other rows go as before."""
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
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers calls it; query (B, H, T, D), result (B, T, H, D)."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if layout is None:
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
                attn_mask=mask,
                is_causal=mask is None,
                scale=scaling,
                enable_gqa=True,
            )
        )
    return torch.cat(found, dim=2).transpose(1, 2), None

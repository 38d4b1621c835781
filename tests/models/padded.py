"""Rows as one padded batch for transformers' own forward, which the packed forward must match."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from vtune.models.batch import Pictures, Row, distinct_pictures
from vtune.models.positions import rope_positions


@dataclass(frozen=True, slots=True)
class Batch:
    """B rows padded to T tokens."""

    input_ids: torch.Tensor
    """int64, (B, T)."""
    attention_mask: torch.Tensor
    """int64, (B, T); 0 on padding."""
    position_ids: torch.Tensor
    """int64, (3, B, T)."""
    pictures: Pictures | None


def collate(
    rows: Sequence[Row], *, pad_id: int, image_id: int, merge: int, side: Literal["left", "right"]
) -> Batch:
    """Pad rows to one length. A picture shown by several rows is stored and encoded once."""
    length = max(len(row.token_ids) for row in rows)
    input_ids = torch.full((len(rows), length), pad_id)
    attention_mask = torch.zeros_like(input_ids)
    position_ids = torch.zeros(3, len(rows), length, dtype=torch.long)
    for index, row in enumerate(rows):
        count = len(row.token_ids)
        where = slice(length - count, length) if side == "left" else slice(0, count)
        input_ids[index, where] = torch.tensor(row.token_ids)
        attention_mask[index, where] = 1
        grids = [pixels.grid for pixels in row.pixels]
        position_ids[:, index, where] = rope_positions(row.token_ids, grids, image_id=image_id, merge=merge)
    pictures, _ = distinct_pictures(rows)
    return Batch(input_ids, attention_mask, position_ids, pictures)

"""Rows of tokens and pictures as one padded batch, each distinct picture once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from vtune.models.pictures import Pixels
from vtune.models.positions import rope_positions


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation: expanded token ids and the pictures they refer to, in order."""

    token_ids: Sequence[int]
    pixels: Sequence[Pixels]


@dataclass(frozen=True, slots=True)
class Batch:
    """B rows padded to T tokens; U distinct pictures."""

    input_ids: torch.Tensor
    """int64, (B, T)."""
    attention_mask: torch.Tensor
    """int64, (B, T); 0 on padding."""
    position_ids: torch.Tensor
    """int64, (3, B, T)."""
    patches: torch.Tensor | None
    """float32, (patches of all U pictures, dim); None without pictures."""
    grids: torch.Tensor | None
    """int64, (U, 3)."""
    order: tuple[int, ...]
    """Which distinct picture each placeholder run shows, row by row."""

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        move = {
            name: value.to(device) if isinstance(value := getattr(self, name), torch.Tensor) else value
            for name in ("input_ids", "attention_mask", "position_ids", "patches", "grids")
        }
        return Batch(**move, order=self.order)


def collate(
    rows: Sequence[Row], *, pad_id: int, image_id: int, merge: int, side: Literal["left", "right"]
) -> Batch:
    """Pad rows to one length. A picture that several rows show is kept, and encoded, once."""
    length = max(len(row.token_ids) for row in rows)
    input_ids = torch.full((len(rows), length), pad_id)
    attention_mask = torch.zeros_like(input_ids)
    position_ids = torch.zeros(3, len(rows), length, dtype=torch.long)
    distinct: dict[int, int] = {}
    pictures: list[Pixels] = []
    order: list[int] = []
    for index, row in enumerate(rows):
        count = len(row.token_ids)
        where = slice(length - count, length) if side == "left" else slice(0, count)
        input_ids[index, where] = torch.tensor(row.token_ids)
        attention_mask[index, where] = 1
        grids = [pixels.grid for pixels in row.pixels]
        position_ids[:, index, where] = rope_positions(row.token_ids, grids, image_id=image_id, merge=merge)
        for pixels in row.pixels:
            number = distinct.setdefault(id(pixels), len(pictures))
            if number == len(pictures):
                pictures.append(pixels)
            order.append(number)
    patches = torch.cat([p.patches for p in pictures]) if pictures else None
    grid = torch.tensor([p.grid for p in pictures]) if pictures else None
    return Batch(input_ids, attention_mask, position_ids, patches, grid, tuple(order))


def image_features(model: Any, batch: Batch) -> dict[str, Any] | None:
    """Encode each distinct picture once and lay the features out in row order, with gradient.

    Works for both Qwen2.5-VL and Qwen3-VL (whose deepstack features travel along).
    """
    if batch.patches is None or batch.grids is None:
        return None
    out = model.get_image_features(batch.patches, batch.grids, return_dict=True)
    out.pooler_output = [out.pooler_output[number] for number in batch.order]
    deep = getattr(out, "deepstack_features", None)
    if deep is not None:
        out.deepstack_features = [[layer[number] for number in batch.order] for layer in deep]
    return {"image": out}

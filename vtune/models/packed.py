"""Rows of tokens and pictures packed into one row without padding, with shared prefixes stored once."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch

from vtune.models.attention import Layout, layout
from vtune.models.batch import Pictures, Row, distinct_pictures
from vtune.models.families.family import Positions
from vtune.models.positions import rope_positions
from vtune.models.tree import segment_tree, token_keys


@dataclass(frozen=True, slots=True)
class Packed:
    """One row of T tokens that holds several conversations."""

    input_ids: torch.Tensor
    """int64, (1, T)."""
    position_ids: torch.Tensor
    """int64, (3, 1, T); every conversation counts from its own start."""
    layout: Layout
    """What may attend to what."""
    pictures: Pictures | None
    places: tuple[torch.Tensor, ...]
    """Indices of each conversation's tokens in the row: int64, one tensor per conversation."""

    @property
    def tokens(self) -> int:
        """The number of tokens, T."""
        return self.input_ids.shape[1]

    @property
    def following(self) -> torch.Tensor:
        """The position of the token that would follow each conversation: int64, one per conversation."""
        # One more than the largest so far: pictures may have used fewer positions than tokens.
        return torch.stack([self.position_ids[:, 0, places].amax() + 1 for places in self.places])


def pack(
    rows: Sequence[Row],
    *,
    image_id: int,
    merge: int,
    device: torch.device,
    positions_of: Positions = rope_positions,
) -> Packed:
    """Concatenate rows; a prefix that several of them share, including pictures, is stored once.

    Args:
        rows: The conversations.
        image_id: Token id of the image placeholder.
        merge: Patches per side that become one token.
        device: The device of the result.
        positions_of: The family's rule for positions.

    Raises:
        DataError: If placeholders and pictures do not match.
    """
    pictures, numbers = distinct_pictures(rows)
    keys = [token_keys(row.token_ids, shown, image_id) for row, shown in zip(rows, numbers, strict=True)]
    tree = segment_tree(keys)
    positions = {
        number: positions_of(
            rows[number].token_ids,
            [pixels.grid for pixels in rows[number].pixels],
            image_id=image_id,
            merge=merge,
        )
        for number in {segment.row for segment in tree.segments}
    }
    ids: list[int] = []
    order: list[int] = []
    places: list[torch.Tensor] = []
    for segment in tree.segments:
        tokens = rows[segment.row].token_ids[segment.start : segment.end]
        places.append(torch.arange(len(ids), len(ids) + len(tokens)))
        ids += tokens
        # No segment ends within a picture, and no two pictures touch.
        runs = groupby(keys[segment.row][segment.start : segment.end])
        order += [-1 - key for key, _ in runs if key < 0]
    position_ids = torch.cat([positions[s.row][:, s.start : s.end] for s in tree.segments], dim=1)
    return Packed(
        # numpy takes an eighth of torch's time for a list.
        input_ids=torch.from_numpy(np.array([ids], dtype=np.int64)).to(device),
        position_ids=position_ids[:, None].to(device),
        layout=layout(tree.segments, device),
        pictures=pictures.shown(order).to(device) if pictures else None,
        places=tuple(torch.cat([places[number] for number in path]).to(device) for path in tree.paths),
    )

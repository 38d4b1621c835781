"""Token positions for multimodal rotary embeddings (Qwen2-VL §2.1)."""

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from vtune.errors import DataError

if TYPE_CHECKING:
    import torch


def rope_positions(
    token_ids: Sequence[int], grids: Sequence[tuple[int, int, int]], *, image_id: int, merge: int
) -> "torch.Tensor":
    """Temporal, height and width position of every token, shape (3, T).

    For text all three advance by one; a picture of t x h x w merged patches fills a box of positions, and the
    text after it continues after the box's largest side.

    Args:
        token_ids: The conversation with placeholders expanded, shape (T,).
        grids: (t, h, w) in unmerged patches of each picture, in order.
        image_id: Token id of the image placeholder.
        merge: Patches per side that become one token.

    Raises:
        DataError: If placeholders and pictures do not match.
    """
    import torch  # imported here: families are listed where nothing is computed

    shown = np.asarray(token_ids) == image_id
    total = len(shown)
    out = np.empty((3, total), np.int64)
    position = index = 0
    for grid in grids:
        if not shown[index:].any():
            raise DataError("there are more pictures than placeholders")
        start = index + int(shown[index:].argmax())
        out[:, index:start] = np.arange(position, position + start - index)
        position += start - index
        box = grid[0], grid[1] // merge, grid[2] // merge
        index = start + prod(box)
        if index > total or not shown[start:index].all():
            raise DataError(f"the placeholders at token {start} do not match a picture of {prod(box)} tokens")
        out[:, start:index] = position + np.indices(box).reshape(3, -1)
        position += max(box[1:])
    if shown[index:].any():
        start = index + int(shown[index:].argmax())
        raise DataError(f"token {start} is an image placeholder without a picture")
    out[:, index:] = np.arange(position, position + total - index)
    return torch.from_numpy(out)

"""Positions of tokens for multimodal rotary embeddings (Qwen2-VL §2.1)."""

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from vtune.errors import DataError

if TYPE_CHECKING:
    import torch


def rope_positions(
    token_ids: Sequence[int], grids: Sequence[tuple[int, int, int]], *, image_id: int, merge: int
) -> "torch.Tensor":
    """Temporal, height and width position of every token, shape (3, T).

    Text counts on by one in all three; a picture of t x h x w merged patches takes a box of
    positions and the text after it continues at the box's largest side.

    Args:
        token_ids: The conversation, placeholders expanded, shape (T,).
        grids: (t, h, w) in unmerged patches of each picture, in order.
        image_id: Token id of the image placeholder.
        merge: Patches a side that become one token.

    Raises:
        DataError: If placeholders and pictures do not match.
    """
    import torch  # here: families are listed where nothing computes

    # Lists until the end: a tensor a run would cost more than all the counting.
    axes: tuple[list[int], list[int], list[int]] = ([], [], [])
    position, index, pictures = 0, 0, iter(grids)
    total = len(token_ids)
    while index < total:
        if token_ids[index] != image_id:
            end = index
            while end < total and token_ids[end] != image_id:
                end += 1
            for axis in axes:
                axis += range(position, position + end - index)
            position += end - index
            index = end
            continue
        grid = next(pictures, None)
        if grid is None:
            raise DataError(f"token {index} is an image placeholder without a picture")
        t, h, w = grid[0], grid[1] // merge, grid[2] // merge
        if (
            any(token != image_id for token in token_ids[index : index + t * h * w])
            or index + t * h * w > total
        ):
            raise DataError(f"the placeholders at token {index} do not match a picture of {t * h * w} tokens")
        for cell in product(range(t), range(h), range(w)):
            for axis, along in zip(axes, cell, strict=True):
                axis.append(position + along)
        position += max(h, w)
        index += t * h * w
    if next(pictures, None) is not None:
        raise DataError("there are more pictures than placeholders")
    return torch.tensor(axes, dtype=torch.long)

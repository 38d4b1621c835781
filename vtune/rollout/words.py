"""Conversations with a model whose tokens are not visible: turns stay text, pictures stay pictures."""

from collections.abc import Sequence
from math import ceil, floor, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from vtune.models.families.family import Grid
from vtune.models.pictures import Pixels
from vtune.schema.message import Message

if TYPE_CHECKING:
    import torch


class Words:
    """Takes the place of a `Chat`: there are no token ids, so records have none.

    The model's server renders turns itself. It gets the transcript's messages, tool output as a user turn.
    """

    end_id = -1
    """No token id ends a turn."""

    def prompt(self, messages: Sequence[Message], pixels: Sequence[Pixels]) -> list[int]:
        """Returns no tokens."""
        return []

    def observation(self, text: str, pixels: Sequence[Pixels], *, ended: bool) -> list[int]:
        """Returns no tokens."""
        return []

    def decode(self, token_ids: Sequence[int]) -> str:
        """Returns no text: a completion without tokens has its own."""
        return ""


class Screen:
    """Takes the place of a family's image processor: only fits a picture into a pixel budget.

    Args:
        multiple: Sides are multiples of this many pixels, so that a server has nothing to round.
    """

    stock: Any = None
    side = 1

    def __init__(self, multiple: int) -> None:
        self._multiple = multiple

    def levels(self, picture: Image.Image, least: int, most: int) -> "tuple[torch.Tensor, Grid, int]":
        """The picture's pixels, uint8 (h, w, 3), resized if the budget or the multiple requires it."""
        import torch

        width, height = fitted(picture.width, picture.height, least, most, multiple=self._multiple)
        if picture.size != (width, height):
            picture = picture.resize((width, height), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(picture.convert("RGB"))), (1, height, width), 0

    def patches(self, levels: "torch.Tensor") -> "torch.Tensor":
        """Returns the levels unchanged: there is no vision tower to feed."""
        return levels

    def shown(self, levels: "torch.Tensor", grid: Grid) -> Image.Image:
        """The pixels as a picture again."""
        return Image.fromarray(levels.numpy())


def fitted(width: int, height: int, least: int, most: int, *, multiple: int) -> tuple[int, int]:
    """(width, height) within a pixel budget, keeping the aspect ratio as far as multiples allow.

    Args:
        width: Of the picture, in pixels.
        height: Of the picture, in pixels.
        least: Minimum number of pixels (width x height).
        most: Maximum number of pixels; a side is never shorter than `multiple`, whatever the budget.
        multiple: Both sides are multiples of this, in pixels.
    """
    wide, high = (max(multiple, round(side / multiple) * multiple) for side in (width, height))
    if least <= wide * high <= most:
        return wide, high
    whole, limit = (floor, most) if wide * high > most else (ceil, least)
    scale = sqrt(limit / (width * height))
    wide, high = (max(multiple, whole(side * scale / multiple) * multiple) for side in (width, height))
    return wide, high

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
    """In place of a `Chat`: there are no token ids, and so none in the records.

    Such a model's server renders turns itself. It is sent the messages of the transcript, with tool output as
    a user turn.
    """

    end_id = -1
    """No token ends a turn."""

    def prompt(self, messages: Sequence[Message], pixels: Sequence[Pixels]) -> list[int]:
        """No tokens."""
        return []

    def observation(self, text: str, pixels: Sequence[Pixels], *, ended: bool) -> list[int]:
        """No tokens."""
        return []

    def decode(self, token_ids: Sequence[int]) -> str:
        """No text: a completion without tokens brings its own."""
        return ""


class Screen:
    """In place of a family's image processor: only fits a picture into a budget of pixels.

    Args:
        multiple: Sides are multiples of this many pixels, so that a server has nothing to round.
    """

    stock: Any = None
    side = 1

    def __init__(self, multiple: int) -> None:
        self._multiple = multiple

    def levels(self, picture: Image.Image, least: int, most: int) -> "tuple[torch.Tensor, Grid, int]":
        """The picture's pixels, uint8 (h, w, 3), resized where the budget or the multiple wants it."""
        import torch

        width, height = fitted(picture.width, picture.height, least, most, multiple=self._multiple)
        if picture.size != (width, height):
            picture = picture.resize((width, height), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(picture.convert("RGB"))), (1, height, width), 0

    def patches(self, levels: "torch.Tensor") -> "torch.Tensor":
        """There is no vision tower to take them: returns the same."""
        return levels

    def shown(self, levels: "torch.Tensor", grid: Grid) -> Image.Image:
        """The picture again."""
        return Image.fromarray(levels.numpy())


def fitted(width: int, height: int, least: int, most: int, *, multiple: int) -> tuple[int, int]:
    """(width, height) within a budget, of the same shape as far as whole multiples allow.

    Args:
        width: Of the picture, in pixels.
        height: Of the picture, in pixels.
        least: Pixels (width x height) that it has at least …
        most: … and at most; a side is never shorter than `multiple`, whatever the budget.
        multiple: Of which both sides are multiples, in pixels.
    """
    wide, high = (max(multiple, round(side / multiple) * multiple) for side in (width, height))
    if least <= wide * high <= most:
        return wide, high
    whole, limit = (floor, most) if wide * high > most else (ceil, least)
    scale = sqrt(limit / (width * height))
    wide, high = (max(multiple, whole(side * scale / multiple) * multiple) for side in (width, height))
    return wide, high

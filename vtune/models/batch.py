"""Rows of tokens and pictures, each distinct picture encoded once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vtune.models.families import family_of_model
from vtune.models.pictures import Pixels

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation: expanded token ids and the pictures they refer to, in order."""

    token_ids: Sequence[int]
    pixels: Sequence[Pixels]


@dataclass(frozen=True, slots=True)
class Pictures:
    """U distinct pictures, and where they are shown."""

    levels: "torch.Tensor"
    """uint8, (patches of all U pictures, …)."""
    grids: "torch.Tensor"
    """int64, (U, 3)."""
    order: tuple[int, ...]
    """The distinct picture that each run of placeholders shows, row by row."""
    made: "Callable[[torch.Tensor], torch.Tensor]"
    """See `Pixels.made`."""

    @property
    def patches(self) -> "torch.Tensor":
        """float32, (patches of all U pictures, dim), recomputed on the device of the levels."""
        return self.made(self.levels)

    def to(self, device: "torch.device") -> "Pictures":
        """The same pictures on a device."""
        return replace(self, levels=self.levels.to(device), grids=self.grids.to(device))

    def shown(self, order: Sequence[int]) -> "Pictures":
        """The same pictures with another display order."""
        return replace(self, order=tuple(order))


def distinct_pictures(rows: Sequence[Row]) -> tuple[Pictures | None, list[list[int]]]:
    """The distinct pictures of rows (None if there are none), and the indices that each row shows."""
    import torch

    found: dict[int, int] = {}
    distinct: list[Pixels] = []
    numbers: list[list[int]] = []
    for row in rows:
        for pixels in row.pixels:
            if found.setdefault(id(pixels), len(distinct)) == len(distinct):
                distinct.append(pixels)
        numbers.append([found[id(pixels)] for pixels in row.pixels])
    if not distinct:
        return None, numbers
    levels = torch.cat([pixels.levels for pixels in distinct])
    grids = torch.tensor([pixels.grid for pixels in distinct])
    order = tuple(number for shown in numbers for number in shown)
    return Pictures(levels, grids, order, distinct[0].made), numbers


def image_features(model: Any, pictures: Pictures | None) -> dict[str, Any] | None:
    """Encode each distinct picture once and lay the features out in row order, with gradient.

    If a family uses features from several layers of its tower, they are laid out too.
    """
    if pictures is None:
        return None
    out = model.get_image_features(pictures.patches, pictures.grids, return_dict=True)
    out.pooler_output = [out.pooler_output[number] for number in pictures.order]
    layered = family_of_model(model).layered_features
    if layered:
        out[layered] = [[layer[number] for number in pictures.order] for layer in out[layered]]
    return {"image": out}

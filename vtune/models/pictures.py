"""From encoded pictures to the patches that a vision tower takes."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from PIL import Image
from pydantic import Field, model_validator

from vtune.config import Strict
from vtune.models.families.family import Grid, PictureProcessor
from vtune.schema.pixels import decode_picture

if TYPE_CHECKING:
    import torch


class PixelBudget(Strict):
    """How large a picture may be when the policy sees it, in pixels (width x height)."""

    min_pixels: int = Field(gt=0)
    max_pixels: int = Field(gt=0)

    @model_validator(mode="after")
    def _there_is_a_size_between(self) -> Self:
        if self.min_pixels > self.max_pixels:
            raise ValueError(
                f"min_pixels {self.min_pixels} exceeds max_pixels {self.max_pixels}: "
                "lower the first or raise the second"
            )
        return self


def widest(budgets: Sequence[PixelBudget]) -> PixelBudget:
    """The budget that holds every picture of each of these."""
    return PixelBudget(
        min_pixels=min(budget.min_pixels for budget in budgets),
        max_pixels=max(budget.max_pixels for budget in budgets),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """One picture as the vision tower takes it."""

    patches: "torch.Tensor"
    """float32, shape (t·h·w, channels·temporal·patch²)."""
    grid: Grid
    """(t, h, w) in patches."""
    tokens: int
    """Placeholder tokens that it fills in the prompt."""


class PictureReader:
    """Decodes, resizes and patchifies pictures; a picture seen lately is not processed again.

    A group's rollouts share their input picture, so it is processed once a group. At most `keep_bytes`
    of patches are remembered.
    """

    def __init__(
        self, processor: PictureProcessor, budget: PixelBudget, *, keep_bytes: int = 2 << 30
    ) -> None:
        self.budget = budget
        self._processor = processor
        self._room = keep_bytes
        self._seen: OrderedDict[bytes, Pixels] = OrderedDict()
        # A step may be drawn while another thread trains.
        self._turn = threading.Lock()

    def within(self, budget: PixelBudget) -> "PictureReader":
        """A reader of the same kind with another budget, which remembers nothing yet."""
        return PictureReader(self._processor, budget)

    def read(self, data: bytes) -> Pixels:
        """The pixels of an encoded picture; the same object for the same bytes.

        Raises:
            DataError: If the bytes are not a picture, or break a limit of `vtune.schema.pixels`.
        """
        key = hashlib.blake2b(data, digest_size=16).digest()
        with self._turn:
            found = self._seen.get(key)
            if found is None:
                found = self._seen[key] = self._process(data)
                self._room -= found.patches.nbytes
                while self._room < 0 and len(self._seen) > 1:
                    self._room += self._seen.popitem(last=False)[1].patches.nbytes
            else:
                self._seen.move_to_end(key)
            return found

    def shown_size(self, data: bytes) -> tuple[int, int]:
        """(width, height) in pixels of an encoded picture as the policy sees it.

        Raises:
            DataError: If the bytes are not a picture.
        """
        _, rows, columns = self.read(data).grid
        side = self._processor.side
        return columns * side, rows * side

    def shown(self, pixels: Pixels) -> Image.Image:
        """The picture as the policy sees it, resized and padded: the patches put together again, exactly.

        Whoever processes it once more without resizing gets the same patches.
        """
        return self._processor.shown(pixels.patches, pixels.grid)

    def _process(self, data: bytes) -> Pixels:
        budget = self.budget
        return Pixels(*self._processor.patches(decode_picture(data), budget.min_pixels, budget.max_pixels))

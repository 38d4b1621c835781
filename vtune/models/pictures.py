"""From encoded pictures to the colour values from which a vision tower's patches are made."""

import asyncio
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

import numpy as np
from PIL import Image
from pydantic import Field, model_validator

from vtune.models.families.family import Grid, PictureProcessor
from vtune.schema.decoded import at_hand, keep
from vtune.schema.heads import NoHead, read_head
from vtune.schema.pixels import decode_picture
from vtune.schema.remembered import Remembered
from vtune.sections import Strict

if TYPE_CHECKING:
    import torch

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8
"""Most threads that read pictures; ours: a rank has about as many cores beside its GPU."""

SHARED_PIXELS = 1 << 20
"""Largest picture whose decoded form is cached; ours. A few larger ones would fill the cache."""

SMALL_PIXELS, SMALL_BYTES = 1 << 16, 1 << 18
"""Smaller pictures are read at once; ours. It takes a millisecond or two, and a thread would add to that."""


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
    """The budget that admits every picture allowed by any of these."""
    return PixelBudget(
        min_pixels=min(budget.min_pixels for budget in budgets),
        max_pixels=max(budget.max_pixels for budget in budgets),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """One picture in the form that the vision tower takes."""

    levels: "torch.Tensor"
    """Its colour values, patch by patch, uint8, (t·h·w, …)."""
    grid: Grid
    """(t, h, w) in patches."""
    tokens: int
    """Placeholder tokens that it fills in the prompt."""
    name: str
    """Identifies contents and size: pictures with the same name are equal, whichever process read them."""
    made: "Callable[[torch.Tensor], torch.Tensor]"
    """Levels -> patches, float32, (t·h·w, channels·temporal·patch²), on the device of the levels."""

    @property
    def patches(self) -> "torch.Tensor":
        """Its patches, recomputed."""
        return self.made(self.levels)


class PictureReader:
    """Decodes, resizes and cuts pictures into patches; recently seen pictures are cached.

    A group's rollouts share their input picture, so it is processed once per group. At most `keep_bytes` of
    levels are cached. Thread-safe; `load` reads in its own threads.
    """

    def __init__(
        self, processor: PictureProcessor, budget: PixelBudget, *, keep_bytes: int = 2 << 30
    ) -> None:
        self.budget = budget
        self._processor = processor
        self._seen: Remembered[bytes, Pixels] = Remembered(keep_bytes, lambda _, made: made.levels.nbytes)
        self._coming: dict[int, Future[Pixels]] = {}
        """Pictures being read by threads, by the identity of the bytes."""
        self._turn = threading.Lock()
        """Guards `_coming`; never held while a picture is processed."""
        count = min(THREADS, len(os.sched_getaffinity(0)))
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="vtune-pictures", initializer=_one_core)

    def within(self, budget: PixelBudget) -> "PictureReader":
        """A reader of the same kind with another budget and an empty cache."""
        return PictureReader(self._processor, budget)

    def read(self, data: bytes) -> Pixels:
        """The pixels of an encoded picture; the same object for the same bytes.

        Raises:
            DataError: If the bytes are not a picture, or exceed a limit of `vtune.schema.pixels`.
        """
        key = hashlib.blake2b(data, digest_size=16).digest()
        return self._seen.get(key, lambda: self._process(data, key.hex()))

    def begin(self, data: bytes) -> "Future[Pixels]":
        """Start reading a picture in a thread; further requests for the same bytes get the same future."""
        with self._turn:
            coming = self._coming.get(id(data))
            if coming is None:
                coming = self._coming[id(data)] = self._threads.submit(self._come, data)
            return coming

    async def load(self, images: Sequence[bytes]) -> list[Pixels]:
        """Like `read` for each picture, without blocking the event loop.

        Raises:
            DataError: As for `read`.
        """
        begun = [None if self._is_small(data) else self.begin(data) for data in images]
        return [
            # Shielded: another conversation may wait for the same future.
            self.read(data) if one is None else await asyncio.shield(asyncio.wrap_future(one))
            for data, one in zip(images, begun, strict=True)
        ]

    async def beside(self, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Run other work on pictures in the same threads."""
        return await asyncio.wrap_future(self.submit(work, *given, **named))

    def submit(self, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> "Future[T]":
        """Like `beside`, for callers without an event loop."""
        return self._threads.submit(work, *given, **named)

    def shown_size(self, data: bytes) -> tuple[int, int]:
        """(width, height) in pixels of an encoded picture as the policy sees it.

        Raises:
            DataError: If the bytes are not a picture.
        """
        return self.size(self.read(data))

    def size(self, pixels: Pixels) -> tuple[int, int]:
        """(width, height) in pixels of the picture as shown."""
        _, rows, columns = pixels.grid
        side = self._processor.side
        return columns * side, rows * side

    def shown(self, pixels: Pixels) -> Image.Image:
        """The picture as the policy sees it, resized and padded, reassembled from its levels.

        Processing it again without resizing gives the same patches.
        """
        return self._processor.shown(pixels.levels, pixels.grid)

    def _come(self, data: bytes) -> Pixels:
        try:
            return self.read(data)
        finally:
            with self._turn:
                del self._coming[id(data)]

    def _is_small(self, data: bytes) -> bool:
        """Whether the data is quick to read, or is not a picture at all."""
        if len(data) > SMALL_BYTES:
            return False
        try:
            head = read_head(data)
        except NoHead:
            return True
        return max(head.width * head.height, self.budget.min_pixels) <= SMALL_PIXELS

    def _process(self, data: bytes, content: str) -> Pixels:
        budget = self.budget
        picture = _decoded(data)
        levels, grid, tokens = self._processor.levels(picture, budget.min_pixels, budget.max_pixels)
        name = f"{content}-{'x'.join(map(str, grid))}"
        return Pixels(levels, grid, tokens, name, self._processor.patches)


def _decoded(data: bytes) -> Image.Image:
    """A decoded picture; small ones are cached for others that look at them: rewards, sandbox sessions."""
    pixels = at_hand(data)
    if pixels is not None:
        return Image.fromarray(pixels)
    picture = decode_picture(data)
    if picture.width * picture.height <= SHARED_PIXELS:
        keep(data, np.asarray(picture))
    return picture


def _one_core() -> None:
    """Pictures are read in parallel: none of them needs torch's own threads."""
    import torch

    torch.set_num_threads(1)  # this setting is per thread

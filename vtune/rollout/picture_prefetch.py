"""Prefetches a conversation's pictures: threads read them before the event loop needs them."""

from collections.abc import Sequence

from vtune.models.pictures import PictureReader, Pixels


class PrefetchedPictures:
    """The pictures that a conversation has loaded; they are kept even if the reader evicts them.

    Args:
        reader: The policy's picture reader.
    """

    def __init__(self, reader: PictureReader) -> None:
        self._reader = reader
        self._loaded: dict[int, tuple[bytes, Pixels]] = {}
        """By the identity of the bytes, which are kept alive for that: comparing megabytes is slow."""

    async def load(self, images: Sequence[bytes]) -> None:
        """Read pictures in threads; `read` and `shown_size` then return without delay.

        Raises:
            DataError: If one is not a picture, or exceeds a limit of `vtune.schema.pixels`.
        """
        missing = [data for data in images if id(data) not in self._loaded]
        found = await self._reader.load(missing)
        self._loaded |= {id(data): (data, pixels) for data, pixels in zip(missing, found, strict=True)}

    def read(self, data: bytes) -> Pixels:
        """The pixels of a picture; one that was not loaded is read now."""
        loaded = self._loaded.get(id(data))
        return self._reader.read(data) if loaded is None else loaded[1]

    def shown_size(self, data: bytes) -> tuple[int, int]:
        """(width, height) in pixels at which the policy sees it."""
        return self._reader.size(self.read(data))

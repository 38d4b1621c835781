"""Prefetches a conversation's pictures: threads read them before the event loop needs them."""

from collections.abc import Sequence

from vtune.models.pictures import PictureReader, Pixels


class PrefetchedPictures:
    """What a conversation has loaded; it stays, whatever the reader forgets.

    Args:
        reader: The policy's eyes.
    """

    def __init__(self, reader: PictureReader) -> None:
        self._reader = reader
        self._loaded: dict[int, tuple[bytes, Pixels]] = {}
        """By the identity of the bytes, which are kept for that: to compare megabytes takes time."""

    async def load(self, images: Sequence[bytes]) -> None:
        """Read pictures in threads; from then on `read` and `shown_size` know them.

        Raises:
            DataError: If one is not a picture, or breaks a limit of `vtune.schema.pixels`.
        """
        missing = [data for data in images if id(data) not in self._loaded]
        found = await self._reader.load(missing)
        self._loaded |= {id(data): (data, pixels) for data, pixels in zip(missing, found, strict=True)}

    def read(self, data: bytes) -> Pixels:
        """The pixels of a picture; of one that was not loaded they are read now."""
        loaded = self._loaded.get(id(data))
        return self._reader.read(data) if loaded is None else loaded[1]

    def shown_size(self, data: bytes) -> tuple[int, int]:
        """(width, height) in pixels in which the policy sees it."""
        return self._reader.size(self.read(data))

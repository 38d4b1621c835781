"""Inputs that the trainer has decoded, as files of pixels: the sessions of a group need not do it again."""

import os
from collections import OrderedDict
from pathlib import Path

from vtune.sandbox.guest.settings import EARLY_PIXELS
from vtune.schema.decode import UNDECODABLE
from vtune.schema.decoded import Pixels, at_hand
from vtune.schema.pixels import Refused, examine

ROOM = 64 << 20
"""Bytes of files that are kept; ours: a hundred pictures of 448 x 448."""
KINDS = ("PNG", "JPEG")
"""Formats whose pixels may be filled in; readers of others keep more than pixels."""


class PixelFiles:
    """Files that sessions read beside their inputs; those asked for least lately go first.

    Args:
        folder: Of the files, which is made; nobody but the sandbox reads it.
        room: Bytes of files, at most; one file is kept, however large.
    """

    def __init__(self, folder: Path, room: int = ROOM) -> None:
        folder.mkdir(0o700)
        self._folder = folder
        self._room = room
        self._files: OrderedDict[bytes, Path | None] = OrderedDict()
        """None for a picture that sessions decode themselves."""
        self._made = 0

    def link(self, content: bytes, path: str) -> bool:
        """Put the pixels of a picture at `path`, row by row, three bytes each.

        Returns:
            Whether there are any: only of small pictures in RGB that somebody has decoded lately.

        Raises:
            OSError: If that is not possible.
        """
        if content in self._files:
            self._files.move_to_end(content)
        else:
            pixels = at_hand(content)
            if pixels is None or pixels.shape[0] * pixels.shape[1] > EARLY_PIXELS:
                return False
            self._files[content] = self._written(pixels) if _is_plain(content) else None
            self._forget_some()
        file = self._files[content]
        if file is not None:
            os.link(file, path)
        return file is not None

    def _written(self, pixels: Pixels) -> Path:
        """A new file of these pixels."""
        self._made += 1
        path = self._folder / f"{self._made:06d}"
        path.write_bytes(pixels.tobytes())
        path.chmod(0o444)
        self._room -= pixels.nbytes
        return path

    def _forget_some(self) -> None:
        while self._room < 0 and len(self._files) > 1:
            _, file = self._files.popitem(last=False)
            if file is not None:
                self._room += file.stat().st_size
                file.unlink()


def _is_plain(content: bytes) -> bool:
    """Whether all that a picture shows are its pixels in RGB."""
    try:
        with examine(content) as picture:
            return (
                picture.format in KINDS
                and picture.mode == "RGB"
                and not picture.has_transparency_data
                and not getattr(picture, "is_animated", False)
            )
    except (Refused, *UNDECODABLE):
        return False

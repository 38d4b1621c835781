"""Inputs that the trainer decoded, as files of pixels that the sessions of a group share."""

import os
from collections import OrderedDict
from pathlib import Path

from vtune.sandbox.guest.settings import EARLY_PIXELS
from vtune.schema.decode import UNDECODABLE
from vtune.schema.decoded import at_hand
from vtune.schema.pixels import Refused, examine

ROOM = 64 << 20
"""Bytes of files to keep; ours: a hundred pictures of 448 x 448."""
KINDS = ("PNG", "JPEG")
"""Formats whose pixels may be filled in; PIL's readers of other formats keep more than pixels."""


class PixelFiles:
    """Files that sessions read next to their inputs; the least recently requested ones are removed first.

    Args:
        folder: Folder for the files, which is created; only the sandbox reads it.
        room: Bytes of the files and of their pictures, at most; one file is always kept, however large.
    """

    def __init__(self, folder: Path, room: int = ROOM) -> None:
        folder.mkdir(0o700)
        self._folder = folder
        self._room = room
        self._files: OrderedDict[bytes, Path] = OrderedDict()
        self._made = 0

    def link(self, content: bytes, path: str) -> bool:
        """Link the pixels of a picture to `path`, row by row, three bytes each.

        Returns:
            Whether they are there. Only small RGB pictures that were decoded recently have any, and none are
            there if the disk is full or has no hard links. The session then decodes the picture itself.
        """
        try:
            if content not in self._files and not self._write(content):
                return False
            self._files.move_to_end(content)
            os.link(self._files[content], path)
        except OSError:
            return False
        return True

    def _write(self, content: bytes) -> bool:
        """Write the pixels of a picture to a new file, if there are any to share."""
        pixels = at_hand(content)
        if pixels is None or pixels.shape[0] * pixels.shape[1] > EARLY_PIXELS or not _is_plain(content):
            return False
        self._made += 1
        path = self._folder / f"{self._made:06d}"
        try:
            path.write_bytes(pixels.tobytes())
            path.chmod(0o444)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        self._files[content] = path
        self._room -= len(content) + pixels.nbytes
        while self._room < 0 and len(self._files) > 1:
            old, file = self._files.popitem(last=False)
            self._room += len(old) + file.stat().st_size
            file.unlink()
        return True


def _is_plain(content: bytes) -> bool:
    """Whether a picture consists of nothing but its RGB pixels."""
    try:
        with examine(content) as picture:
            return (
                picture.format in KINDS
                and picture.mode == "RGB"
                # Chunks after the pixels are only read with them, so this one may not be known yet.
                and b"tRNS" not in content
                and not getattr(picture, "is_animated", False)
            )
    except (Refused, *UNDECODABLE):
        return False

"""The pictures that a call left in its workspace, checked and traced back to the inputs."""

import io
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL.Image

from . import locate
from .hooks import Tracker
from .paths import PICTURES
from .provenance import Region

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
"""The only decoders that are ever tried."""
UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    SyntaxError,
    MemoryError,
    struct.error,
    PIL.Image.DecompressionBombError,
)
"""What Pillow raises on files that are not what their names say."""
MAX_ENTRIES = 2000
"""Files looked at in a workspace."""

Stamp = tuple[int, int, int]
"""Inode, time of change (ns), size: another version of a file has another stamp."""

# Bound before anything is hooked, so that looking leaves no trace in the tracker.
_open = PIL.Image.open


@dataclass(frozen=True, slots=True)
class Artifact:
    """One returned picture."""

    name: str
    """Relative to the workspace."""
    content: bytes
    """PNG or JPEG."""
    region: Region | None


class Collector:
    """Finds new pictures in one workspace."""

    def __init__(
        self, root: str, tracker: Tracker, *, max_images: int, max_pixels: int, max_bytes: int
    ) -> None:
        self.root = root
        self.tracker = tracker
        self.max_images = max_images
        self.max_pixels = max_pixels
        self.max_bytes = max_bytes
        self.before: dict[str, Stamp] = {}
        self.grey: dict[int, Any] = {}
        """Grey levels of the inputs, decoded when first needed."""

    def start_call(self) -> None:
        """Remember what is there now."""
        self.before = dict(self._files())

    def collect(self) -> tuple[list[Artifact], list[str]]:
        """The pictures that are new or changed since `start_call`, and notes for the model.

        Returns:
            At most `max_images` pictures in order of creation, and a note for everything left out.
        """
        written = {path: number for number, path in enumerate(self.tracker.written)}
        found = []
        for name, stamp in self._files():
            order = written.get(f"{self.root}/{name}")
            if order is not None or self.before.get(name) != stamp:
                # Files written within one tick of the clock share their time; the order of saving decides.
                found.append((stamp[1], len(written) if order is None else order, name))
        names = [name for _, _, name in sorted(found)]
        notes = []
        if len(names) > self.max_images:
            notes.append(f"only the first {self.max_images} of {len(names)} new pictures are shown")
        artifacts = []
        for name in names[: self.max_images]:
            try:
                artifacts.append(self._artifact(name))
            except UNREADABLE as error:
                notes.append(f"{name} is not shown: {_reason(error)}")
        return artifacts, notes

    def _files(self) -> Iterator[tuple[str, Stamp]]:
        """Regular picture files with one name each, never through a link."""
        count = 0
        for folder, _, names in os.walk(self.root):
            for name in names:
                count += 1
                if count > MAX_ENTRIES:
                    return
                path = f"{folder}/{name}"
                relative = os.path.relpath(path, self.root)
                if not name.lower().endswith(PICTURES) or relative in self.tracker.inputs:
                    continue
                facts = os.lstat(path)
                if stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1:
                    yield relative, (facts.st_ino, facts.st_mtime_ns, facts.st_size)

    def _artifact(self, name: str) -> Artifact:
        path = f"{self.root}/{name}"
        content = self._read(path)
        picture = _open(io.BytesIO(content), formats=FORMATS)
        pixels = picture.width * picture.height
        if pixels > self.max_pixels:
            raise ValueError(f"it has {pixels} pixels, more than the {self.max_pixels} allowed")
        picture.load()
        region = self.tracker.saved.get(path)
        if region is None:
            region = self._located(picture)
            self.tracker.saved[path] = region
        if picture.format not in ("PNG", "JPEG"):
            content = _as_png(picture)
        return Artifact(name, content, region)

    def _read(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            content = file.read(self.max_bytes + 1)
        if len(content) > self.max_bytes:
            raise ValueError(f"it is larger than {self.max_bytes >> 20} MiB")
        return content

    def _located(self, picture: Any) -> Region | None:
        grey = np.asarray(picture.convert("L"))
        for region, _ in self.tracker.sources.values():
            if region.image not in self.grey:
                source = _open(f"{self.root}/{self.tracker.inputs[region.image]}")
                self.grey[region.image] = np.asarray(source.convert("L"))
            matrix = locate.locate(grey, self.grey[region.image])
            if matrix is not None:
                return region.moved(matrix, picture.size)
        return None


def _as_png(picture: Any) -> bytes:
    file = io.BytesIO()
    picture.convert("RGBA" if picture.has_transparency_data else "RGB").save(file, "PNG")
    return file.getvalue()


def _reason(error: Exception) -> str:
    return "it is not a picture" if isinstance(error, PIL.UnidentifiedImageError) else str(error)

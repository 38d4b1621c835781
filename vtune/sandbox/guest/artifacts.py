"""The pictures that a call left in its workspace, traced back to the inputs."""

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import PIL.Image

from . import locate
from .greys import Source
from .hooks import Tracker
from .paths import PICTURES
from .regions import Region

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
"""The only decoders that are ever used."""
UNREADABLE = (
    OSError,
    EOFError,
    SyntaxError,
    ValueError,
    IndexError,
    TypeError,
    MemoryError,
    struct.error,
    zlib.error,
    PIL.Image.DecompressionBombError,
)
"""What Pillow raises on files that are not what their names claim."""
MAX_ENTRIES = 2000
"""Files examined in a workspace."""
MAX_NAMED = 64
"""Pictures named in one answer; far more than are ever shown."""

Stamp = tuple[int, int, int]
"""Inode, modification time (ns), size: each version of a file has a different stamp."""

# Bound before anything is hooked, so that reading leaves no trace in the tracker.
_open = PIL.Image.open


@dataclass(frozen=True, slots=True)
class Artifact:
    """One new picture."""

    name: str
    """Relative to the workspace."""
    region: Region | None
    """What it shows of an input; None if unknown."""
    readable: bool
    """False if it was opened and is not a picture."""


class Collector:
    """Finds new pictures in a workspace and reports what they show. The trainer reads the files itself."""

    def __init__(
        self, root: str, tracker: Tracker, *, max_images: int, allows: Callable[[int, int, bytes], bool]
    ) -> None:
        self.root = root
        self.tracker = tracker
        self.max_images = max_images
        self.allows = allows
        """Whether a picture of a given width, height and content may be shown."""
        self.before: dict[str, Stamp] | None = None
        """Picture files after the last call; None before the first."""
        self.sources: dict[int, Source] = {}
        """Grey levels of the inputs, decoded when first needed."""

    def start_call(self) -> None:
        """Record which files exist now; between two calls of a session nothing changes."""
        if self.before is None:
            self.before = dict(self._files())

    def collect(self) -> list[Artifact]:
        """The pictures that are new or changed since `start_call`, in order of creation.

        For the first `max_images`, what they show is searched for if their history does not tell.
        """
        written = {path: number for number, path in enumerate(self.tracker.written)}
        before, self.before = self.before or {}, dict(self._files())
        found = []
        for name, stamp in self.before.items():
            order = written.get(f"{self.root}/{name}")
            if order is not None or before.get(name) != stamp:
                # Files written within one clock tick have the same time; the order of saving decides.
                found.append((stamp[1], len(written) if order is None else order, name))
        artifacts = []
        for at, (_, order, name) in enumerate(sorted(found)[:MAX_NAMED]):
            if order == len(written):
                # Written without the hooks: what an earlier file of this name showed no longer applies.
                self.tracker.saved.pop(f"{self.root}/{name}", None)
            artifacts.append(self._artifact(name, look=at < self.max_images))
        return artifacts

    def _files(self) -> Iterator[tuple[str, Stamp]]:
        """Regular picture files; links are not followed."""
        count = 0
        pending = [self.root]
        while pending:
            try:
                with os.scandir(pending.pop()) as listing:
                    entries = list(listing)
            except OSError:
                # The code has removed it, or made it inaccessible to itself.
                continue
            for entry in entries:
                count += 1
                if count > MAX_ENTRIES:
                    return
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                elif entry.name.lower().endswith(PICTURES) and entry.is_file(follow_symlinks=False):
                    facts = entry.stat(follow_symlinks=False)
                    name = entry.path[len(self.root) + 1 :]
                    yield name, (facts.st_ino, facts.st_mtime_ns, facts.st_size)

    def _artifact(self, name: str, *, look: bool) -> Artifact:
        path = f"{self.root}/{name}"
        if path not in self.tracker.saved and look:
            try:
                self.tracker.saved[path] = self._located(path)
            except UNREADABLE:
                return Artifact(name, None, readable=False)
        return Artifact(name, self.tracker.saved.get(path), readable=True)

    def _located(self, path: str) -> Region | None:
        picture = _open(path, formats=FORMATS)
        with open(path, "rb") as file:
            content = file.read()
        if not self.allows(*picture.size, content):
            return None
        region = self.tracker.region_of_content(content, upright=False)
        if region is not None:
            return region
        grey = np.asarray(picture.convert("L"))
        for region, _ in self.tracker.sources.values():
            found = locate.region_in(
                grey, self._source(region.image), region, self.tracker.cuts.hints(region.image)
            )
            if found is not None:
                return found
        return None

    def _source(self, image: int) -> Source:
        if image not in self.sources:
            picture = _open(f"{self.root}/{self.tracker.inputs[image]}")
            self.sources[image] = Source(np.asarray(picture.convert("L")))
        return self.sources[image]

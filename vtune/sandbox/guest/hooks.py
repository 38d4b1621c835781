"""What a session knows about its pictures, and what the recording hooks have in common (see `hooked`)."""

import functools
import os
import zlib
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

from .maps import Matrix, Size
from .regions import Cuts, Region, whole_input

ORIENTATIONS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
"""EXIF orientation -> number of the PIL transposition that makes the picture upright."""
MAX_CONTENTS = 256
"""Encoded pictures whose checksums are kept."""

Print = tuple[int, int]
"""Length and CRC-32 of an encoded picture. Not a secret: code that forges one only deceives itself."""


class Tracker:
    """What a session remembers about its pictures across calls."""

    def __init__(self) -> None:
        self.begin("")

    def begin(self, root: str) -> None:
        """Start over without any pictures.

        Args:
            root: The workspace, absolute and resolved.
        """
        self.cuts = Cuts()
        self.root = root
        """The workspace, absolute and resolved."""
        self.inputs: tuple[str, ...] = ()
        """File names of the input images."""
        self.sources: dict[str, tuple[Region, int]] = {}
        """Input file name -> its region and its EXIF orientation."""
        self.saved: dict[str, Region | None] = {}
        """Absolute path -> region of the picture last saved there by a hooked function."""
        self.written: list[str] = []
        """Absolute paths that the current call saved to, in order."""
        self._contents: dict[Print, Region] = {}
        """Pictures that were encoded into memory."""
        self._lengths: set[int] = set()
        """Lengths of these pictures: most other bytes already differ in length."""

    def add_input(self, name: str, size: Size, orientation: int) -> Region:
        """Register the next input image; return its region."""
        region = whole_input(len(self.inputs), size, self.cuts)
        self.inputs += (name,)
        self.sources[name] = (region, orientation)
        return region

    def start_call(self) -> None:
        """Forget what belongs to the previous call."""
        self.cuts.clear()
        self.written.clear()

    def note_saved(self, path: str, region: Region | None) -> None:
        """Record that a picture with this region was saved; None: the region is yet to be determined."""
        absolute = os.path.realpath(path)
        self.written.append(absolute)
        if region is None:
            self.saved.pop(absolute, None)
        else:
            self.saved[absolute] = region

    def note_content(self, content: bytes | memoryview, region: Region | None) -> None:
        """Record what an encoded picture shows."""
        if region is not None and len(self._contents) < MAX_CONTENTS:
            self._contents[len(content), zlib.crc32(content)] = region
            self._lengths.add(len(content))

    def region_of_file(self, path: Any, *, upright: bool) -> Region | None:
        """The region of a picture file.

        Args:
            path: As passed to the reading function.
            upright: Whether the reader applies the EXIF orientation.
        """
        if not isinstance(path, (str, os.PathLike)):
            return None
        real = os.path.realpath(path)
        name = self._input_at(real)
        return self.saved.get(real) if name is None else self._region_of_input(name, upright=upright)

    def region_of_content(self, content: bytes | memoryview, *, upright: bool) -> Region | None:
        """The region of an encoded picture: a copy of an input or saved file, or one encoded into memory."""
        length = len(content)
        if length in self._lengths:
            region = self._contents.get((length, zlib.crc32(content)))
            if region is not None:
                return region
        for name in self.inputs:
            if _holds(f"{self.root}/{name}", content):
                return self._region_of_input(name, upright=upright)
        return next((self.saved[path] for path in self.saved if _holds(path, content)), None)

    def _input_at(self, real: str) -> str | None:
        """The input that a resolved path leads to; inputs may be links to their actual location."""
        if PurePath(real).name not in self.sources:
            return None
        return next((name for name in self.inputs if os.path.realpath(f"{self.root}/{name}") == real), None)

    def _region_of_input(self, name: str, *, upright: bool) -> Region | None:
        region, orientation = self.sources[name]
        turned = upright and orientation in ORIENTATIONS
        return transposed(region, ORIENTATIONS[orientation]) if turned else region


def free_name(stem: str) -> str:
    """The first of `stem_1.png`, `stem_2.png`, … that does not exist in the working folder."""
    number = 1
    while Path(f"{stem}_{number}.png").exists():
        number += 1
    return f"{stem}_{number}.png"


def transposed(region: Region | None, method: int) -> Region | None:
    """The region after one of PIL's seven transpositions, by number."""
    if region is None:
        return None
    w, h = region.size
    matrix: Matrix
    matrix, size = (
        ((-1, 0, w, 0, 1, 0), (w, h)),  # flip left-right
        ((1, 0, 0, 0, -1, h), (w, h)),  # flip top-bottom
        ((0, -1, w, 1, 0, 0), (h, w)),  # quarter turn counter-clockwise
        ((-1, 0, w, 0, -1, h), (w, h)),  # half turn
        ((0, 1, 0, -1, 0, h), (h, w)),  # quarter turn clockwise
        ((0, 1, 0, 1, 0, 0), (h, w)),  # transpose
        ((0, -1, w, -1, 0, h), (h, w)),  # transverse
    )[method]
    return region.moved(matrix, size)


def after(owner: Any, name: str, note: Callable[..., Any]) -> None:
    """Call `note(result, *arguments)` after each call of `owner.name`, and return its result instead."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        return note(original(*args, **kwargs), *args, **kwargs)

    setattr(owner, name, hooked)


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], at: int, name: str, default: Any = None) -> Any:
    """An argument of a call, whether positional or keyword."""
    return args[at] if len(args) > at else kwargs.get(name, default)


def first_argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The first argument of a call, whatever its name."""
    return next(iter((*args, *kwargs.values())), None)


def _holds(path: str, content: bytes | memoryview) -> bool:
    """Whether a file has this content."""
    try:
        if Path(path).stat().st_size != len(content):
            return False
        return Path(path).read_bytes() == content
    except FileNotFoundError:
        return False

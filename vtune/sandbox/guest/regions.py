"""Which part of an input a picture shows: its region, or that of a mosaic of several."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .maps import IDENTITY, Box, Matrix, Size, compose, inverted, mapped_box, shown_box

MAX_CUTS = 64
"""Crops recorded per call; a loop over tiles makes thousands, which nobody reads."""
MAX_PARTS = 16
"""Regions that one picture is said to show; a mosaic of more is not a look at anything."""
COVERED = 0.9
"""Share of a part that must be painted over for the part to count as gone; ours."""
SAME_PLACE = 0.5
"""IoU of a new piece and what a part showed in its place, from which the part continues; ours."""


class Cuts:
    """The regions that a call cropped from the inputs, each once, in order."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, Box], None] = {}
        self.recent: dict[tuple[int, Box], None] = {}
        """The latest ones, over all calls: a picture whose history is lost often shows one of them."""

    def add(self, image: int, box: Box) -> None:
        """Record a region; beyond `MAX_CUTS` in a call it only counts as recent."""
        if len(self.seen) < MAX_CUTS:
            self.seen[image, box] = None
        self.recent.pop((image, box), None)
        self.recent[image, box] = None
        if len(self.recent) > MAX_CUTS:
            del self.recent[next(iter(self.recent))]

    def clear(self) -> None:
        """Start a new call."""
        self.seen.clear()

    def hints(self, image: int) -> tuple[Box, ...]:
        """The crops of an input, the latest first."""
        cut = dict.fromkeys((*reversed(self.recent), *self.seen))
        return tuple(box for number, box in cut if number == image)


@dataclass(frozen=True, slots=True)
class Region:
    """What a picture of `size` pixels shows of input number `image`."""

    image: int
    size: Size
    matrix: Matrix
    """Maps pixels of the picture to pixels of the input."""
    box: Box
    """The part of the input that the picture shows."""
    cuts: Cuts
    beside: tuple["Region", ...] = ()
    """What else the picture shows: the other parts of a mosaic."""

    @property
    def parts(self) -> tuple["Region", ...]:
        """Everything that the picture shows; for most pictures, one region."""
        return (replace(self, beside=()), *self.beside) if self.beside else (self,)

    def moved(self, matrix: Matrix, size: Size) -> "Region | None":
        """The region of a picture made from this one.

        Args:
            matrix: Maps pixels of the new picture to pixels of this one.
            size: Size of the new picture.

        Returns:
            None if the new picture shows nothing of the input.
        """
        if self.beside:
            return together([part.moved(matrix, size) for part in self.parts])
        total = compose(self.matrix, matrix)
        shown = shown_box(total, size, self.box)
        if shown is None:
            return None
        box = (round(shown[0], 3), round(shown[1], 3), round(shown[2], 3), round(shown[3], 3))
        if box[0] >= box[2] or box[1] >= box[3]:
            return None
        if box != self.box:
            self.cuts.add(self.image, box)
        return Region(self.image, size, total, box, self.cuts)

    def scaled(self, size: Size) -> "Region":
        """The region of this picture resized, or filtered, as a whole."""
        if size == self.size or 0 in size:
            return self
        stretch = (self.size[0] / size[0], 0, 0, 0, self.size[1] / size[1], 0)
        return Region(
            self.image,
            size,
            compose(self.matrix, stretch),
            self.box,
            self.cuts,
            tuple(part.scaled(size) for part in self.beside),
        )

    def footprint(self) -> Box | None:
        """Where in the picture the region lies, in pixels of the picture; None if that is undefined."""
        inverse = inverted(self.matrix)
        spread = mapped_box(inverse, self.box) if inverse else None
        if spread is None:
            return None
        x0, y0, x1, y1 = spread
        return (max(x0, 0), max(y0, 0), min(x1, self.size[0]), min(y1, self.size[1]))


def whole_input(image: int, size: Size, cuts: Cuts) -> Region:
    """The region of an input image itself."""
    return Region(image, size, IDENTITY, (0.0, 0.0, float(size[0]), float(size[1])), cuts)


def together(parts: Sequence[Region | None]) -> Region | None:
    """The region of a picture that shows several things; None if it shows none."""
    found = [part for region in parts if region is not None for part in region.parts][:MAX_PARTS]
    return replace(found[0], beside=tuple(found[1:])) if found else None


def pasted(canvas: Region | None, new: Region | None) -> Region | None:
    """What a canvas shows after something was put onto it.

    Everything that the new part covers is gone. A part put inside another one, such as a close-up in a
    corner, is shown beside it; a piece put back into its original place leaves the canvas unchanged.

    Args:
        canvas: What it showed before.
        new: What is put there, as a region of the whole canvas.
    """
    place = new.footprint() if new is not None else None
    if new is None or place is None:
        return canvas
    parts: list[Region] = []
    for part in canvas.parts if canvas else ():
        old = part.footprint()
        if old is None:
            continue
        shared = _area(_overlap(old, place))
        if shared >= COVERED * _area(old):
            continue
        if shared >= COVERED * _area(place) and _put_back(part, new, place):
            return canvas
        parts.append(part)
    for at, neighbour in enumerate(parts):
        joined = _joined(neighbour, new)
        if joined is not None:
            parts[at] = joined
            return together(parts)
    return together([*parts, new])


def _put_back(part: Region, new: Region, place: Box) -> bool:
    """Whether a part showed (roughly) the same in the place of the new one as the new one does."""
    before = mapped_box(part.matrix, place)
    if before is None or part.image != new.image or new.beside:
        return False
    shared = _area(_overlap(before, new.box))
    return shared >= SAME_PLACE * (_area(before) + _area(new.box) - shared)


def _joined(part: Region, new: Region) -> Region | None:
    """Two neighbouring pieces of one picture, put back side by side, as one."""
    if part.image != new.image or part.matrix != new.matrix or new.beside:
        return None
    a, b = part.box, new.box
    both = (min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3]))
    filled = _area(a) + _area(b) - _area(_overlap(a, b))
    return replace(part, box=both) if _area(both) <= filled * 1.001 else None


def _overlap(a: Box, b: Box) -> Box:
    return (max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3]))


def _area(box: Box) -> float:
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])

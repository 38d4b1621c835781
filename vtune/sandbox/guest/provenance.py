"""Which part of an input image a picture shows, followed through what code does to it.

Every picture that derives from an input carries a `Region`: an affine map from its pixels to those of the
input, and the box that it shows. PIL pictures hold it as an attribute, arrays as a `TrackedArray`, whose
views find theirs from the distance between memory addresses.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import PIL.Image

Box = tuple[float, float, float, float]
"""xyxy in pixels of the input image."""
Size = tuple[int, int]
"""Width, height."""
Matrix = tuple[float, float, float, float, float, float]
"""(a, b, c, d, e, f): X = a x + b y + c, Y = d x + e y + f, from a picture to what it was made from."""

IDENTITY: Matrix = (1, 0, 0, 0, 1, 0)
MAX_CUTS = 64
"""Cut-out regions kept of one call; a loop over tiles makes thousands, and nobody reads them."""


class Cuts:
    """The regions that a call cut out of the inputs, each once, in order."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, Box], None] = {}

    def add(self, image: int, box: Box) -> None:
        """Note one region; beyond `MAX_CUTS` they are dropped."""
        if len(self.seen) < MAX_CUTS:
            self.seen[image, box] = None

    def clear(self) -> None:
        """Start a new call."""
        self.seen.clear()


@dataclass(frozen=True, slots=True)
class Region:
    """What a picture of `size` pixels shows of input number `image`."""

    image: int
    size: Size
    matrix: Matrix
    """From pixels of the picture to pixels of the input."""
    box: Box
    """The part of the input that the picture shows."""
    cuts: Cuts

    def moved(self, matrix: Matrix, size: Size) -> "Region | None":
        """The region of a picture made from this one.

        Args:
            matrix: From pixels of the new picture to pixels of this one.
            size: Of the new picture.

        Returns:
            None where the new picture shows nothing of the input.
        """
        total = _compose(self.matrix, matrix)
        a, b, c, d, e, f = total
        xs = [a * x + b * y + c for x in (0, size[0]) for y in (0, size[1])]
        ys = [d * x + e * y + f for x in (0, size[0]) for y in (0, size[1])]
        box = (
            round(max(min(xs), self.box[0]), 3),
            round(max(min(ys), self.box[1]), 3),
            round(min(max(xs), self.box[2]), 3),
            round(min(max(ys), self.box[3]), 3),
        )
        if box[0] >= box[2] or box[1] >= box[3]:
            return None
        if box != self.box:
            self.cuts.add(self.image, box)
        return Region(self.image, size, total, box, self.cuts)

    def scaled(self, size: Size) -> "Region":
        """The region of this picture resized, or filtered, as a whole."""
        if size == self.size or 0 in size:
            return self
        matrix = _compose(self.matrix, (self.size[0] / size[0], 0, 0, 0, self.size[1] / size[1], 0))
        return Region(self.image, size, matrix, self.box, self.cuts)


def whole(image: int, size: Size, cuts: Cuts) -> Region:
    """The region of an input image itself."""
    return Region(image, size, IDENTITY, (0.0, 0.0, float(size[0]), float(size[1])), cuts)


def _compose(outer: Matrix, inner: Matrix) -> Matrix:
    """First `inner`, then `outer`."""
    a, b, c, d, e, f = outer
    p, q, r, s, t, u = inner
    return (a * p + b * s, a * q + b * t, a * r + b * u + c, d * p + e * s, d * q + e * t, d * r + e * u + f)


class Layout(NamedTuple):
    """Where the elements of an array lie in memory."""

    start: int
    """Address of the first element."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes."""

    @classmethod
    def of(cls, array: Any) -> "Layout":
        """The layout of an array as it is now."""
        return cls(array.__array_interface__["data"][0], array.shape, array.strides)


class TrackedArray(np.ndarray):
    """An array that knows its region and hands it on to views, copies and results of arithmetic.

    To a model it looks like a plain array.
    """

    _region: Region | None = None
    _parent: tuple[Region, Layout, tuple[int, ...]] | None = None
    """Of a view: region and layout of what it was made from, and the strides that it was born with."""

    @property
    def region(self) -> Region | None:
        """What the array shows of an input, None where that is not known."""
        if self._parent is not None and self._parent[2] != self.strides:
            # Numpy makes a transposed view as it was and permutes its strides afterwards.
            self.region = self._as_view(*self._parent[:2])
        return self._region

    @region.setter
    def region(self, region: Region | None) -> None:
        self._region, self._parent = region, None

    def __array_finalize__(self, parent: Any) -> None:
        """Take over the region of the array that this one comes from."""
        region = getattr(parent, "region", None)
        if not isinstance(region, Region) or self.ndim < 2 or 0 in self.shape:
            return
        if np.may_share_memory(self, parent):
            layout = Layout.of(parent)
            self.region = self._as_view(region, layout)
            self._parent = (region, layout, self.strides)
        elif self.shape[:2] == parent.shape[:2]:
            self.region = region

    def _as_view(self, region: Region, layout: Layout) -> Region | None:
        matrix = view_matrix(Layout.of(self), layout)
        return region.moved(matrix, _size(self)) if matrix else None

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Give scalars where a plain array would."""
        return array[()] if return_scalar else super().__array_wrap__(array, context, return_scalar)

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))


TrackedArray.__module__, TrackedArray.__name__, TrackedArray.__qualname__ = "numpy", "ndarray", "ndarray"


def region_of(thing: Any) -> Region | None:
    """The region of a PIL picture or an array, None where it is not known."""
    if isinstance(thing, PIL.Image.Image):
        region = getattr(thing, "region", None)
        # A picture may be shrunk in place, by thumbnail() or draft().
        return region.scaled(thing.size) if isinstance(region, Region) else None
    if not isinstance(thing, np.ndarray) or thing.ndim < 2 or 0 in thing.shape:
        return None
    owner: Any = thing
    while isinstance(owner, np.ndarray) and not isinstance(owner, TrackedArray):
        owner = owner.base
    if not isinstance(owner, TrackedArray) or owner.region is None or owner is thing:
        return owner.region if isinstance(owner, TrackedArray) else None
    matrix = view_matrix(Layout.of(thing), Layout.of(owner))
    return owner.region.moved(matrix, _size(thing)) if matrix else None


def track(thing: Any, region: Region | None) -> Any:
    """Attach a region to a picture or an array; returns what to use from then on."""
    if isinstance(thing, PIL.Image.Image):
        thing.region = region  # type: ignore[attr-defined]
        return thing
    if region is None or not isinstance(thing, np.ndarray):
        return thing
    tracked = thing.view(TrackedArray)
    tracked.region = region
    return tracked


def view_matrix(view: Layout, base: Layout) -> Matrix | None:
    """How pixels of a view map to those of the array whose memory it shows.

    Found from the distance of their first elements and from their strides, so it does not matter how the view
    was made: slices, steps, flips, transposition, a single channel.

    Returns:
        None where the first two axes of the view are not the two picture axes of the base.
    """
    position = _position(view.start, base)
    rows: list[list[float]] = [[0, 0, 0], [0, 0, 0]]
    free = [axis for axis in _large_first(base) if axis < 2]
    # The longer axis first: one of length 1 fits anywhere.
    for axis in sorted((0, 1), key=lambda axis: -view.shape[axis]):
        single = view.shape[axis] == 1
        along = next((a for a in free if single or _walks(view.strides[axis], base.strides[a])), None)
        if along is None:
            return None
        free.remove(along)
        step = 1 if single else view.strides[axis] // base.strides[along]
        # Axis 0 of an array is y, axis 1 is x. A step back covers its pixel from the far edge.
        rows[1 - along][1 - axis] = step
        rows[1 - along][2] = position[along] + (step < 0)
    (a, b, c), (d, e, f) = rows
    return (a, b, c, d, e, f)


def _position(address: int, base: Layout) -> dict[int, int]:
    """Index, on each axis of an array, of the element at an address."""
    lowest = base.start + sum(
        stride * (length - 1) for stride, length in zip(base.strides, base.shape, strict=True) if stride < 0
    )
    distance = address - lowest
    position = {}
    for axis in _large_first(base):
        steps, distance = divmod(distance, abs(base.strides[axis]) or 1)
        position[axis] = steps if base.strides[axis] >= 0 else base.shape[axis] - 1 - steps
    return position


def _large_first(base: Layout) -> list[int]:
    """Axes by falling stride: each then takes its share of a distance. One of length 1 has no share."""
    return sorted(
        range(len(base.strides)), key=lambda axis: (base.shape[axis] == 1, -abs(base.strides[axis]))
    )


def _walks(stride: int, base_stride: int) -> bool:
    """Whether steps of the one are whole steps of the other."""
    return bool(stride and base_stride and stride % base_stride == 0)


def _size(array: Any) -> Size:
    return array.shape[1], array.shape[0]

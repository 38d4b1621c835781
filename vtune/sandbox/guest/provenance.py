"""Which parts of the inputs a picture shows, followed through what code does to it.

Every picture that derives from an input carries a `Region`: a map from its pixels to those of the input, and
the box that it shows. PIL pictures hold it as an attribute, arrays as a `TrackedArray`, whose views find
theirs from the distance between memory addresses.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import PIL.Image

Box = tuple[float, float, float, float]
"""xyxy in pixels of the input image."""
Size = tuple[int, int]
"""Width, height."""
Matrix = tuple[float, ...]
"""From a picture to what it was made from. Six numbers (a, b, c, d, e, f): X = a x + b y + c,
Y = d x + e y + f. Nine: the rows of a homography, for a change of perspective."""

IDENTITY: Matrix = (1, 0, 0, 0, 1, 0)
MAX_CUTS = 64
"""Cut-out regions kept of one call; a loop over tiles makes thousands, and nobody reads them."""
MAX_PARTS = 16
"""Regions that one picture is said to show; a mosaic of more is no look at anything."""
COVERED = 0.9
"""Share of a part that must be painted over for the part to count as gone; ours."""


class Cuts:
    """The regions that a call cut out of the inputs, each once, in order."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, Box], None] = {}
        self.recent: dict[tuple[int, Box], None] = {}
        """The latest ones, of earlier calls too: a picture whose history is lost often shows one of them."""

    def add(self, image: int, box: Box) -> None:
        """Note one region; beyond `MAX_CUTS` in a call they count only as recent."""
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
        """What was cut out of an input, the latest first."""
        cut = dict.fromkeys((*reversed(self.recent), *self.seen))
        return tuple(box for number, box in cut if number == image)


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
    beside: tuple["Region", ...] = ()
    """What else the picture shows: the other parts of a mosaic."""

    @property
    def parts(self) -> tuple["Region", ...]:
        """Everything that the picture shows; one region for most."""
        return (replace(self, beside=()), *self.beside) if self.beside else (self,)

    def moved(self, matrix: Matrix, size: Size) -> "Region | None":
        """The region of a picture made from this one.

        Args:
            matrix: From pixels of the new picture to pixels of this one.
            size: Of the new picture.

        Returns:
            None where the new picture shows nothing of the input.
        """
        if self.beside:
            return together([part.moved(matrix, size) for part in self.parts])
        total = compose(self.matrix, matrix)
        spread = _spread(total, (0, 0, size[0], size[1]))
        if spread is None:
            return None
        x0, y0, x1, y1 = self.box
        box = (
            round(max(spread[0], x0), 3),
            round(max(spread[1], y0), 3),
            round(min(spread[2], x1), 3),
            round(min(spread[3], y1), 3),
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
        """Where in the picture the region lies, in pixels of the picture; None where that cannot be said."""
        inverse = inverted(self.matrix)
        spread = _spread(inverse, self.box) if inverse else None
        if spread is None:
            return None
        x0, y0, x1, y1 = spread
        return (max(x0, 0), max(y0, 0), min(x1, self.size[0]), min(y1, self.size[1]))


def whole_input(image: int, size: Size, cuts: Cuts) -> Region:
    """The region of an input image itself."""
    return Region(image, size, IDENTITY, (0.0, 0.0, float(size[0]), float(size[1])), cuts)


def together(parts: Sequence[Region | None]) -> Region | None:
    """The region of a picture that shows several things; None where it shows none."""
    found = [part for region in parts if region is not None for part in region.parts][:MAX_PARTS]
    return replace(found[0], beside=tuple(found[1:])) if found else None


def pasted(canvas: Region | None, new: Region | None) -> Region | None:
    """What a canvas shows after something was put onto it.

    Whatever the new part covers is gone. A part put inside another one, a legend or a close-up in a corner,
    leaves the canvas what it was.

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
        if shared >= COVERED * _area(place):
            return canvas
        parts.append(part)
    for at, neighbour in enumerate(parts):
        joined = _joined(neighbour, new)
        if joined is not None:
            parts[at] = joined
            return together(parts)
    return together([*parts, new])


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


def compose(outer: Matrix, inner: Matrix) -> Matrix:
    """First `inner`, then `outer`."""
    if len(outer) == 6 and len(inner) == 6:
        a, b, c, d, e, f = outer
        p, q, r, s, t, u = inner
        return (
            a * p + b * s,
            a * q + b * t,
            a * r + b * u + c,
            d * p + e * s,
            d * q + e * t,
            d * r + e * u + f,
        )
    return tuple(float(value) for value in (_square(outer) @ _square(inner)).ravel())


def inverted(matrix: Matrix) -> Matrix | None:
    """The way back, None where there is none."""
    if len(matrix) == 6:
        a, b, c, d, e, f = matrix
        det = a * e - b * d
        if abs(det) < 1e-12:
            return None
        return (e / det, -b / det, (b * f - c * e) / det, -d / det, a / det, (c * d - a * f) / det)
    square = _square(matrix)
    if abs(np.linalg.det(square)) < 1e-12:
        return None
    return tuple(float(value) for value in np.linalg.inv(square).ravel())


def _square(matrix: Matrix) -> Any:
    return np.array(matrix if len(matrix) == 9 else (*matrix, 0, 0, 1), float).reshape(3, 3)


def _spread(matrix: Matrix, box: Box) -> Box | None:
    """The box around a mapped box; None where the horizon of a perspective runs through it."""
    x0, y0, x1, y1 = box
    if len(matrix) == 6:
        a, b, c, d, e, f = matrix
        if not b and not d:
            left, right, top, bottom = a * x0 + c, a * x1 + c, e * y0 + f, e * y1 + f
            return (min(left, right), min(top, bottom), max(left, right), max(top, bottom))
        xs = [a * x + b * y + c for x in (x0, x1) for y in (y0, y1)]
        ys = [d * x + e * y + f for x in (x0, x1) for y in (y0, y1)]
        return (min(xs), min(ys), max(xs), max(ys))
    corners = _square(matrix) @ np.array([(x, y, 1) for x in (x0, x1) for y in (y0, y1)], float).T
    if corners[2].min() * corners[2].max() <= 0:
        return None
    px, py = (corners[:2] / corners[2]).tolist()
    return (min(px), min(py), max(px), max(py))


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


@dataclass(slots=True)
class Anchor:
    """The array that first held some memory; all its views refer to it."""

    region: Region | None
    """None for an empty canvas; it changes when something is put onto the array."""
    layout: Layout


class TrackedArray(np.ndarray):
    """An array that knows its region and hands it on to views, copies and results of arithmetic.

    To a model it looks like a plain array.
    """

    anchor: Anchor | None = None
    _known: tuple[Region | None, tuple[int, ...], Region | None] | None = None
    """Region of the anchor and strides for which the array's own region was last found."""

    @property
    def region(self) -> Region | None:
        """What the array shows of an input, None where that is not known."""
        anchor = self.anchor
        if anchor is None or anchor.region is None:
            return None
        known = self._known
        # Numpy makes a transposed view as it was and permutes its strides afterwards.
        if known is None or known[0] is not anchor.region or known[1] != self.strides:
            self._known = known = (anchor.region, self.strides, seen_through(self, anchor))
        return known[2]

    @region.setter
    def region(self, region: Region | None) -> None:
        self.anchor, self._known = Anchor(region, Layout.of(self)), None

    def __array_finalize__(self, parent: Any) -> None:
        """Take over the region of the array that this one comes from."""
        anchor = getattr(parent, "anchor", None)
        if not isinstance(anchor, Anchor) or self.ndim < 2 or 0 in self.shape:
            return
        if np.may_share_memory(self, parent):
            self.anchor = anchor
            # Cutting out is noted when it happens.
            _ = self.region
        elif self.shape[:2] == parent.shape[:2]:
            self.region = parent.region

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Give scalars where a plain array would; a picture times a mask shows what the picture shows."""
        if return_scalar:
            return array[()]
        result: Any = super().__array_wrap__(array, context, return_scalar)
        if context is not None and result.ndim >= 2 and result.region is None:
            regions = (region_of(other) for other in context[1] if isinstance(other, np.ndarray))
            same = (region for region in regions if region and region.size == _size(result))
            result.region = next(same, None)
        return result

    def __getitem__(self, index: Any) -> Any:
        """Follow lists of rows, masks and `np.ix_`, which numpy answers with a copy."""
        result = super().__getitem__(index)
        if isinstance(result, TrackedArray) and result.ndim >= 2 and not _is_basic(index):
            result.region = self._picked(index) if result.size else None
        return result

    def __setitem__(self, index: Any, value: Any) -> None:
        """A picture written into an array is seen there."""
        super().__setitem__(index, value)
        region = region_of(value) if self.anchor is not None and isinstance(value, np.ndarray) else None
        if region is None:
            return
        target = self.view(np.ndarray)[index]
        if not np.may_share_memory(target, self) or target.shape[:2] != value.shape[:2]:
            return
        anchor = self.anchor
        assert anchor is not None
        there = view_matrix(Layout.of(target), anchor.layout)
        back = there and inverted(there)
        if back:
            anchor.region = pasted(anchor.region, region.moved(back, _layout_size(anchor.layout)))

    def take(self, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
        """As of a plain array."""
        result = super().take(indices, axis, out, mode)
        return rearranged(result, self, axis, lambda line: line.take(indices, mode=mode))

    def compress(self, condition: Any, axis: Any = None, out: Any = None) -> Any:
        """As of a plain array."""
        result = super().compress(condition, axis, out)
        return rearranged(result, self, axis, lambda line: line.compress(condition))

    def repeat(self, repeats: Any, axis: Any = None) -> Any:
        """As of a plain array."""
        return rearranged(super().repeat(repeats, axis), self, axis, lambda line: line.repeat(repeats))

    def _picked(self, index: Any) -> Region | None:
        """The region of `self[index]`: the same index into the row and column numbers of each pixel."""
        region = self.region
        if region is None:
            return None
        channels = (1,) * (self.ndim - 2)
        height, width = self.shape[:2]
        rows = np.broadcast_to(np.arange(height).reshape(height, 1, *channels), self.shape)[index]
        columns = np.broadcast_to(np.arange(width).reshape(1, width, *channels), self.shape)[index]
        return region.moved(_gathered(rows, columns), _size(rows))

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled as a plain array, which it says it is."""
        return self.view(np.ndarray).__reduce_ex__(protocol)


TrackedArray.__module__, TrackedArray.__name__, TrackedArray.__qualname__ = "numpy", "ndarray", "ndarray"


def region_of(thing: Any) -> Region | None:
    """The region of a PIL picture or an array, None where it is not known."""
    if isinstance(thing, PIL.Image.Image):
        region = getattr(thing, "region", None)
        # A picture may be shrunk in place, by thumbnail() or draft().
        return region.scaled(thing.size) if isinstance(region, Region) else None
    if isinstance(thing, TrackedArray):
        return thing.region
    if not isinstance(thing, np.ndarray) or thing.ndim < 2 or 0 in thing.shape:
        return None
    owner: Any = thing
    while owner is not None and not isinstance(owner, TrackedArray):
        # Behind a buffer, or the helper object of as_strided, there is an array again.
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    anchor = owner.anchor if owner is not None else None
    return seen_through(thing, anchor) if anchor is not None else None


def track(thing: Any, region: Region | None) -> Any:
    """Attach a region to a picture or an array; returns what to use from then on."""
    if isinstance(thing, PIL.Image.Image):
        thing.region = region  # type: ignore[attr-defined]
        return thing
    if isinstance(thing, TrackedArray) and region is None:
        thing.region = None
    if region is None or not isinstance(thing, np.ndarray):
        return thing
    tracked = thing.view(TrackedArray)
    tracked.region = region
    return tracked


def as_canvas(array: Any) -> Any:
    """An array that shows nothing yet, but will see what is put onto it."""
    canvas = array.view(TrackedArray)
    canvas.region = None
    return canvas


def rearranged(result: Any, array: Any, axis: Any, of_line: Any) -> Any:
    """Give a region to what was made by choosing and repeating rows, columns or channels.

    Args:
        result: What numpy made.
        array: Of what.
        axis: Along which axis; None is all of them in one line.
        of_line: What the same choice makes of the numbers of the rows (columns, channels).
    """
    region = region_of(array)
    if region is None or not isinstance(axis, (int, np.integer)) or result.ndim < 2 or not result.size:
        return result
    axis = int(axis) % array.ndim
    if axis > 1:
        return track(result, region)
    line = of_line(np.arange(array.shape[axis]))
    steps = np.diff(line)
    if line.ndim != 1 or not ((steps >= 0).all() or (steps <= 0).all()):
        # Shuffled, or rolled over the edge: no map leads back.
        return track(result, None)
    step, offset = _along(line, line[-1] >= line[0], len(line))
    size = _size(result)
    return track(
        result, region.moved((1, 0, 0, 0, step, offset) if axis == 0 else (step, 0, offset, 0, 1, 0), size)
    )


def seen_through(view: Any, anchor: Anchor) -> Region | None:
    """What a view shows of the array whose memory it uses."""
    if anchor.region is None or not 2 <= view.ndim <= 3 or 0 in view.shape:
        return None
    layout = Layout.of(view)
    if layout == anchor.layout:
        return anchor.region
    matrix = _slice_matrix(layout, anchor.layout) or view_matrix(layout, anchor.layout)
    return anchor.region.moved(matrix, _size(view)) if matrix else None


def _slice_matrix(view: Layout, base: Layout) -> Matrix | None:
    """The same as `view_matrix`, for the most frequent view: a plain slice of rows and columns."""
    row, pixel = base.strides[:2]
    if view.strides[:2] != (row, pixel) or not row > pixel > 0:
        return None
    y, rest = divmod(view.start - base.start, row)
    x = rest // pixel
    if y < 0 or y + view.shape[0] > base.shape[0] or x + view.shape[1] > base.shape[1]:
        return None
    return (1, 0, x, 0, 1, y)


def view_matrix(view: Layout, base: Layout) -> Matrix | None:
    """How pixels of a view map to those of the array whose memory it shows.

    Found from the distance of their first elements and from their strides, so it does not matter how the view
    was made: slices, steps, flips, transposition, blocks, a single channel.

    Returns:
        None where the first two axes of the view are not the two picture axes of the base.
    """
    position = _position(view.start, base)
    rows: list[list[float]] = [[0, 0, 0], [0, 0, 0]]
    free = [axis for axis in _large_first(base) if axis < 2]
    # The longer axis first: one of length 1 fits anywhere.
    for axis in sorted((0, 1), key=lambda axis: -view.shape[axis]):
        single = view.shape[axis] == 1
        along = next((a for a in free if single or _walks(view, axis, base, a, position[a])), None)
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


def _walks(view: Layout, axis: int, base: Layout, along: int, start: int) -> bool:
    """Whether an axis of the view makes whole steps along one of the base and stays within it."""
    stride, unit = view.strides[axis], base.strides[along]
    if not stride or not unit or stride % unit:
        return False
    return 0 <= start + (stride // unit) * (view.shape[axis] - 1) < base.shape[along]


def _is_basic(index: Any) -> bool:
    """Whether an index makes a view: numbers, slices, `...` and None."""
    parts = index if type(index) is tuple else (index,)
    return all(part is None or part is ... or type(part) in (slice, int) for part in parts)


def _gathered(rows: Any, columns: Any) -> Matrix:
    """The map that fits pixels gathered one by one, from the row and the column number of each."""
    height, width = rows.shape[:2]
    down, across = rows[-1].mean() - rows[0].mean(), rows[:, -1].mean() - rows[:, 0].mean()
    if abs(across) > abs(down):
        # Rows became columns.
        a, c = _along(columns, columns[-1].mean() >= columns[0].mean(), height)
        e, f = _along(rows, across >= 0, width)
        return (0, a, c, e, 0, f)
    a, c = _along(columns, columns[:, -1].mean() >= columns[:, 0].mean(), width)
    e, f = _along(rows, down >= 0, height)
    return (a, 0, c, 0, e, f)


def _along(numbers: Any, forward: Any, length: int) -> tuple[float, float]:
    """Factor and offset from places in a line to the row (column) numbers that stand there."""
    low, high = int(numbers.min()), int(numbers.max()) + 1
    factor = (high - low) / length
    return (factor, low) if forward else (-factor, high)


def _size(array: Any) -> Size:
    return array.shape[1], array.shape[0]


def _layout_size(layout: Layout) -> Size:
    return layout.shape[1], layout.shape[0]

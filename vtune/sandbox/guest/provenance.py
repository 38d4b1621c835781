"""Which parts of the inputs a picture shows, followed through what code does to it.

Every picture derived from an input carries a `Region`: a map from its pixels to those of the input, and the
box that it shows. PIL pictures hold it as an attribute; arrays are `TrackedArray`s, whose views compute
theirs from distances between memory addresses.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL.Image

from .layout import Layout, slice_matrix, view_matrix
from .maps import Matrix, Size, inverted
from .regions import Region, pasted

CHANNELS = 4
"""Most numbers per pixel."""


@dataclass(slots=True)
class Anchor:
    """The array that first held a piece of memory; all its views refer to it."""

    region: Region | None
    """None for a blank canvas; changes when something is put onto the array."""
    layout: Layout


class TrackedArray(np.ndarray):
    """An array that knows its region and passes it on to views, copies and results of arithmetic.

    To model code it looks like a plain array.
    """

    anchor: Anchor | None = None
    _known: tuple[Region | None, tuple[int, ...], Region | None] | None = None
    """The anchor's region and the strides for which the array's own region was last computed."""
    pixels: Region | None = None
    """The region whose pixels it lists one by one: all if a picture was flattened, else what a mask picks."""

    @property
    def region(self) -> Region | None:
        """What the array shows of an input; None if unknown."""
        anchor = self.anchor
        if anchor is None or anchor.region is None:
            return None
        known = self._known
        # Numpy creates a transposed view untransposed and permutes its strides afterwards.
        if known is None or known[0] is not anchor.region or known[1] != self.strides:
            self._known = known = (anchor.region, self.strides, seen_through(self, anchor))
        return known[2]

    @region.setter
    def region(self, region: Region | None) -> None:
        self.anchor, self._known = Anchor(region, Layout.of(self)), None

    def __array_finalize__(self, parent: Any) -> None:
        """Take over the region of the array that this one is made from."""
        pixels = getattr(parent, "pixels", None)
        if pixels is not None and self.ndim and len(self) == len(parent):
            self.pixels = pixels
        anchor = getattr(parent, "anchor", None)
        if not isinstance(anchor, Anchor) or self.ndim < 2 or 0 in self.shape:
            return
        if np.may_share_memory(self, parent):
            self.anchor = anchor
            # Record the crop now.
            _ = self.region
        elif self.shape[:2] == parent.shape[:2]:
            self.region = parent.region

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Return scalars where a plain array would; a picture times a mask shows what is inside the mask."""
        if return_scalar:
            return array[()]
        result: Any = super().__array_wrap__(array, context, return_scalar)
        if context is not None and result.ndim >= 2 and result.region is None:
            regions = (region_of(other) for other in context[1] if isinstance(other, np.ndarray))
            same = (region for region in regions if region and region.size == _size(result))
            result.region = next(same, None)
        if context is not None and context[0] is np.multiply and result.ndim >= 2 and result.region:
            masks = [one for one in context[1] if np.ndim(one) >= 2 and region_of(one) is None]
            for mask in masks:
                result.region = within(result.region, np.broadcast_to(np.asarray(mask, bool), result.shape))
        return result

    def __getitem__(self, index: Any) -> Any:
        """Follow lists of rows, masks and `np.ix_`, for which numpy returns a copy."""
        result = super().__getitem__(index)
        if not isinstance(result, TrackedArray):
            return result
        if _is_mask(index):
            result.pixels = self.region
        elif result.ndim >= 2 and not _is_basic(index):
            result.region = self._picked(index) if result.size else None
        return result

    def __setitem__(self, index: Any, value: Any) -> None:
        """A picture written into an array shows up in its region; a colour all over it clears the region."""
        super().__setitem__(index, value)
        if _is_mask(index) and isinstance(value, TrackedArray) and value.pixels is not None:
            self.written(value.pixels, index)
            return
        region = region_of(value) if self.anchor is not None and isinstance(value, np.ndarray) else None
        if region is None:
            if _is_everything(index) and np.ndim(value) < 2:
                self._emptied()
            elif isinstance(index, np.ndarray) and index.dtype == bool and np.ndim(value) < 2:
                self._painted(index)
            return
        target = self.view(np.ndarray)[index]
        if np.may_share_memory(target, self) and target.shape[:2] == value.shape[:2]:
            self._put_at(target, region)

    def written(self, region: Region, mask: Any = True) -> None:
        """Note that a picture with this region was written over all of the array, where a mask is true."""
        seen = region if mask is True else within(region, mask)
        if seen is not None and self.ndim >= 2 and region.size == _size(self):
            self._put_at(self.view(np.ndarray), seen)

    def _put_at(self, target: Any, region: Region) -> None:
        """Note what was written into a part of the array."""
        anchor = self.anchor
        if anchor is None:
            return
        there = view_matrix(Layout.of(target), anchor.layout)
        back = there and inverted(there)
        if back:
            anchor.region = pasted(anchor.region, region.moved(back, _layout_size(anchor.layout)))

    def fill(self, value: Any) -> None:
        """As for a plain array."""
        super().fill(value)
        self._emptied()

    def _painted(self, mask: Any) -> None:
        """A colour all over a mask leaves what is outside it, if this array covers all of its memory."""
        anchor = self.anchor
        if anchor is None or mask.ndim < 2 or Layout.of(self) != anchor.layout:
            return
        if region_of(mask) is None:
            anchor.region = within(anchor.region, ~np.asarray(mask))

    def _emptied(self) -> None:
        """Clear the region, if this array covers all of its memory; things put onto it later count again."""
        if self.anchor is not None and Layout.of(self) == self.anchor.layout:
            self.anchor.region = None

    def take(self, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
        """As for a plain array."""
        result = super().take(indices, axis, out, mode)
        return rearranged(result, self, axis, lambda line: line.take(indices, mode=mode))

    def compress(self, condition: Any, axis: Any = None, out: Any = None) -> Any:
        """As for a plain array."""
        result = super().compress(condition, axis, out)
        return rearranged(result, self, axis, lambda line: line.compress(condition))

    def repeat(self, repeats: Any, axis: Any = None) -> Any:
        """As for a plain array."""
        return rearranged(super().repeat(repeats, axis), self, axis, lambda line: line.repeat(repeats))

    def reshape(self, *shape: Any, **options: Any) -> Any:
        """As for a plain array."""
        return self._reshaped(super().reshape(*shape, **options))

    def ravel(self, order: Any = "C") -> Any:
        """As for a plain array."""
        return self._reshaped(super().ravel(order))

    def flatten(self, order: Any = "C") -> Any:
        """As for a plain array."""
        return self._reshaped(super().flatten(order))

    def _reshaped(self, result: Any) -> Any:
        """A picture becomes a list of its pixels, or their numbers; such a list becomes a picture again."""
        region = self.pixels or self.region
        if region is not None and result.ndim >= 2 and _size(result) == region.size:
            if result.region is None:
                result.region = region
        elif result.ndim == 1 or (result.ndim == 2 and result.shape[1] <= CHANNELS):
            result.pixels = region
        return result

    def _picked(self, index: Any) -> Region | None:
        """The region of `self[index]`, found by indexing the row and column numbers of all pixels."""
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
        """Pickle as a plain array, which it claims to be."""
        return self.view(np.ndarray).__reduce_ex__(protocol)


TrackedArray.__module__, TrackedArray.__name__, TrackedArray.__qualname__ = "numpy", "ndarray", "ndarray"


def region_of(thing: Any) -> Region | None:
    """The region of a PIL picture, an array or an array's memory; None if unknown."""
    if isinstance(thing, PIL.Image.Image):
        region = getattr(thing, "region", None)
        # thumbnail() and draft() may shrink a picture in place.
        return region.scaled(thing.size) if isinstance(region, Region) else None
    if isinstance(thing, memoryview) and thing.shape == getattr(thing.obj, "shape", None):
        thing = thing.obj  # all of an array's memory
    if isinstance(thing, TrackedArray):
        return thing.region
    if not isinstance(thing, np.ndarray) or thing.ndim < 2 or 0 in thing.shape:
        return None
    owner: Any = thing
    while owner is not None and not isinstance(owner, TrackedArray):
        # Behind a buffer, or as_strided's helper object, there is another array.
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    anchor = owner.anchor if owner is not None else None
    return seen_through(thing, anchor) if anchor is not None else None


def track(thing: Any, region: Region | None) -> Any:
    """Attach a region to a picture or an array; return the object to use from then on."""
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
    """An array that shows nothing yet, but will record what is put onto it."""
    canvas = array.view(TrackedArray)
    canvas.region = None
    return canvas


def pixelwise(result: Any, *args: Any, **kwargs: Any) -> Any:
    """The result of a function that computes each pixel from the same pixel of its arguments.

    It shows what the first picture of its size among them shows; lists are searched, too.
    """
    if not isinstance(result, np.ndarray) or not result.ndim or region_of(result) is not None:
        return result
    for given in (*args, *kwargs.values()):
        for one in given if isinstance(given, (list, tuple)) else (given,):
            region = region_of(one)
            if region is not None and result.ndim >= 2 and region.size == _size(result):
                return track(result, region)
            if isinstance(one, TrackedArray) and one.pixels is not None and len(one) == len(result):
                return listing(result, one.pixels)
    return result


def listing(numbers: Any, pixels: Region | None) -> Any:
    """An array of numbers for each pixel of a region; reshaped to a picture, it knows what it shows."""
    if pixels is None:
        return numbers
    found = numbers.view(TrackedArray)
    found.pixels = pixels
    return found


def within(region: Region | None, mask: Any) -> Region | None:
    """What a picture shows inside the box around a mask, in its place.

    A mask derived from a picture, by a threshold for example, selects pixels by their content: the region
    then stays complete.

    Args:
        region: Region of a picture as large as the mask.
        mask: Array, shape (h, w) or (h, w, channels); true where the picture is visible.
    """
    if region is None or region_of(mask) is not None:
        return region
    seen: Any = np.asarray(mask, bool)
    seen = seen.any(axis=2) if seen.ndim == 3 else seen
    if seen.shape[::-1] != region.size:
        return region
    rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
    if not len(rows):
        return None
    x0, y0, x1, y1 = int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
    if (x1 - x0, y1 - y0) == region.size:
        return region
    cut = region.moved((1, 0, x0, 0, 1, y0), (x1 - x0, y1 - y0))
    return cut and cut.moved((1, 0, -x0, 0, 1, -y0), region.size)


def rearranged(result: Any, array: Any, axis: Any, of_line: Any) -> Any:
    """Set the region of an array made by selecting and repeating rows, columns or channels.

    Args:
        result: The array that numpy made.
        array: The original array.
        axis: The axis of the selection; None: the flattened array.
        of_line: Applies the same selection to the row (column, channel) numbers.
    """
    region = region_of(array)
    if region is None or result.ndim < 2 or not result.size:
        return result
    if not isinstance(axis, (int, np.integer)):
        # Pixels of the flattened picture, or rolled along several axes.
        return track(result, None)
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
    matrix = slice_matrix(layout, anchor.layout) or view_matrix(layout, anchor.layout)
    return anchor.region.moved(matrix, _size(view)) if matrix else None


def _is_basic(index: Any) -> bool:
    """Whether an index yields a view: numbers, slices, `...` and None."""
    parts = index if type(index) is tuple else (index,)
    return all(part is None or part is ... or type(part) in (slice, int) for part in parts)


def _is_mask(index: Any) -> bool:
    """Whether an index picks pixels of a picture one by one: true or false for each."""
    return isinstance(index, np.ndarray) and index.dtype == bool and index.ndim >= 2


def _is_everything(index: Any) -> bool:
    """Whether an index explicitly selects everything: `[:]`, `[:, :]`, `[...]`."""
    parts = index if type(index) is tuple else (index,)
    return all(part is ... or (type(part) is slice and part == slice(None)) for part in parts)


def _gathered(rows: Any, columns: Any) -> Matrix:
    """The map that fits individually gathered pixels, from the row and column number of each one."""
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
    """Factor and offset that map positions in a line to the row (column) numbers in it."""
    low, high = int(numbers.min()), int(numbers.max()) + 1
    factor = (high - low) / length
    return (factor, low) if forward else (-factor, high)


def _size(array: Any) -> Size:
    return array.shape[1], array.shape[0]


def _layout_size(layout: Layout) -> Size:
    return layout.shape[1], layout.shape[0]

"""How a view maps to the array whose memory it uses, found from addresses and strides."""

from typing import Any, NamedTuple

from .maps import Matrix


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


def slice_matrix(view: Layout, base: Layout) -> Matrix | None:
    """The same as `view_matrix`, for the most common view: a plain slice of rows and columns."""
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

    Computed from the distance between their first elements and from their strides, so it does not matter how
    the view was made: slices, steps, flips, transposition, blocks, a single channel.

    Returns:
        None if the first two axes of the view are not the two picture axes of the base.
    """
    position = _position(view.start, base)
    rows: list[list[float]] = [[0, 0, 0], [0, 0, 0]]
    free = [axis for axis in _large_first(base) if axis < 2]
    # The longer axis first: an axis of length 1 fits anywhere.
    for axis in sorted((0, 1), key=lambda axis: -view.shape[axis]):
        single = view.shape[axis] == 1
        along = next((a for a in free if single or _walks(view, axis, base, a, position[a])), None)
        if along is None:
            return None
        free.remove(along)
        step = 1 if single else view.strides[axis] // base.strides[along]
        # Axis 0 of an array is y, axis 1 is x. A backward step covers its pixel from the far edge.
        rows[1 - along][1 - axis] = step
        rows[1 - along][2] = position[along] + (step < 0)
    (a, b, c), (d, e, f) = rows
    return (a, b, c, d, e, f)


def _position(address: int, base: Layout) -> dict[int, int]:
    """Index, along each axis of an array, of the element at an address."""
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
    """Axes by descending stride, in the order in which they divide up a distance; those of length 1 last."""
    return sorted(
        range(len(base.strides)), key=lambda axis: (base.shape[axis] == 1, -abs(base.strides[axis]))
    )


def _walks(view: Layout, axis: int, base: Layout, along: int, start: int) -> bool:
    """Whether an axis of the view takes integer steps along an axis of the base and stays within it."""
    stride, unit = view.strides[axis], base.strides[along]
    if not stride or not unit or stride % unit:
        return False
    return 0 <= start + (stride // unit) * (view.shape[axis] - 1) < base.shape[along]

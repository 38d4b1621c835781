"""Hooks in numpy: functions whose results would not know what their arguments show."""

from typing import Any

import numpy as np

from .hooks import after, argument, first_argument
from .provenance import TrackedArray, as_canvas, pixelwise, rearranged, region_of, track, within
from .regions import MAX_PARTS, Region, pasted, together

SIDE_BY_SIDE = {"hstack": 1, "vstack": 0, "dstack": 2, "column_stack": 1}
"""Functions that join pictures -> the axis along which they join."""

PIXELWISE = ("interp", "digitize", "searchsorted", "isin", "select", "percentile", "quantile", "take")
"""Functions that turn each pixel of a picture into something else, and make plain arrays."""


def install() -> None:
    """Hook `numpy`."""
    for name in ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "copy", "require"):
        after(np, name, _as_array)
    for name in ("zeros_like", "ones_like", "empty_like", "full_like"):
        after(np, name, _like)
    for name in ("zeros", "ones", "empty", "full"):
        after(np, name, _canvas)
    for name, axis in SIDE_BY_SIDE.items():
        after(np, name, lambda result, arrays, axis=axis, **_k: _joined(result, arrays, axis))
    after(np, "concatenate", lambda result, *a, **k: _joined(result, a[0], argument(a, k, 1, "axis", 0)))
    after(np, "append", lambda result, arr, values, axis=None: _joined(result, (arr, values), axis))
    after(np, "stack", _stacked)
    after(np, "block", _blocked)
    after(np, "tile", _tiled)
    after(np, "pad", _padded)
    after(np, "kron", _enlarged)
    for function in (np.delete, np.roll):
        after(
            np,
            function.__name__,
            lambda result, *a, function=function, **k: _rearranged(function, result, a, k),
        )
    after(np, "where", _chosen)
    for name in PIXELWISE:
        after(np, name, pixelwise)
    after(np.linalg, "norm", pixelwise)
    after(np, "copyto", _copied)


def _as_array(result: Any, thing: Any = None, *_args: Any, **_kwargs: Any) -> Any:
    region = region_of(thing)
    same = region is not None and result.ndim >= 2 and result.shape[1::-1] == region.size
    return track(result, region) if same else result


def _copied(result: None, dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """The picture shows up in the array that it is copied to."""
    region = region_of(src)
    if isinstance(dst, TrackedArray) and region is not None:
        dst.written(region, where if where is True else np.broadcast_to(where, dst.shape))


def _like(result: Any, *_args: Any, **_kwargs: Any) -> Any:
    """A blank canvas of the same size shows nothing of the picture."""
    return as_canvas(result) if isinstance(result, TrackedArray) else result


def _canvas(result: Any, *_args: Any, **_kwargs: Any) -> Any:
    """New arrays of bytes may become pictures; others are left alone."""
    return as_canvas(result) if result.dtype == np.uint8 and 2 <= result.ndim <= 3 else result


def _joined(result: Any, arrays: Any, axis: Any) -> Any:
    """Pictures next to each other; along the third axis, channels stacked on top of each other."""
    arrays = [np.asanyarray(array) for array in arrays]
    regions = [region_of(array) for array in arrays]
    if not any(regions) or not isinstance(axis, int) or not 2 <= result.ndim <= 3:
        return result
    size = (result.shape[1], result.shape[0])
    axis %= result.ndim
    if axis == 2:
        same = (region for region in regions if region and region.size == size)
        return track(result, next(same, None))
    parts: list[Region | None] = []
    start = 0
    for array, region in zip(arrays, regions, strict=True):
        shift = (1, 0, -start, 0, 1, 0) if axis == 1 else (1, 0, 0, 0, 1, -start)
        parts.append(region and region.moved(shift, size))
        start += array.shape[axis] if array.ndim > axis else 0
    return track(result, together(parts))


def _stacked(result: Any, arrays: Any, axis: int = 0, *_args: Any, **_kwargs: Any) -> Any:
    """Channels stacked on top of each other; a stack along any other axis is a list of pictures."""
    last = result.ndim == 3 and axis in (2, -1)
    return track(result, region_of(next(iter(arrays)))) if last else result


def _padded(result: Any, array: Any, pad_width: Any, *_args: Any, **_kwargs: Any) -> Any:
    region = region_of(array)
    if region is None or isinstance(pad_width, dict):
        return result
    (top, _), (left, _) = np.broadcast_to(pad_width, (array.ndim, 2))[:2].tolist()
    return track(result, region.moved((1, 0, -left, 0, 1, -top), (result.shape[1], result.shape[0])))


def _enlarged(result: Any, a: Any, b: Any) -> Any:
    """Each pixel enlarged to a block of equal ones."""
    region = region_of(a)
    blocks = region is not None and result.ndim == a.ndim and np.ptp(b) == 0
    return track(result, region.scaled((result.shape[1], result.shape[0]))) if region and blocks else result


def _rearranged(function: Any, result: Any, args: Any, kwargs: Any) -> Any:
    axis = argument(args, kwargs, 2, "axis")
    what = args[1] if len(args) > 1 else next(kwargs[name] for name in ("obj", "shift") if name in kwargs)
    return rearranged(result, first_argument(args, kwargs), axis, lambda line: function(line, what))


def _blocked(result: Any, arrays: Any) -> Any:
    """Nested lists of pictures, the innermost joined along the last axis: join them again, step by step."""

    def leaves(part: Any) -> Any:
        return [one for piece in part for one in leaves(piece)] if isinstance(part, list) else [part]

    def joined(part: Any, axis: int) -> Any:
        if isinstance(part, list):
            return np.concatenate([joined(piece, axis + 1) for piece in part], axis)
        return np.array(part, ndmin=result.ndim)

    depth, part = 0, arrays
    while isinstance(part, list):
        depth, part = depth + 1, part[0]
    shows = any(region_of(one) is not None for one in leaves(arrays))
    return joined(arrays, -depth) if depth and shows else result


def _tiled(result: Any, *args: Any, **kwargs: Any) -> Any:
    """The picture, or its channel, repeated."""
    array, reps = first_argument(args, kwargs), argument(args, kwargs, 1, "reps")
    region = region_of(array)
    if region is None:
        return result
    times = tuple(np.atleast_1d(reps).tolist())
    times = (1,) * (array.ndim - len(times)) + times
    if result.ndim != array.ndim or times[0] * times[1] > MAX_PARTS or not result.size:
        return track(result, None)
    (width, height), size = region.size, (result.shape[1], result.shape[0])
    places = [(x * width, y * height) for y in range(times[0]) for x in range(times[1])]
    return track(result, together([region.moved((1, 0, -x, 0, 1, -y), size) for x, y in places]))


def _chosen(result: Any, condition: Any, *pictures: Any) -> Any:
    """Pixels of one picture over those of the other; or black and white by a mask."""
    if not isinstance(result, np.ndarray) or not 2 <= result.ndim <= 3 or not pictures:
        return result
    size = (result.shape[1], result.shape[0])
    upper, lower, mask = (
        region if region and region.size == size else None
        for region in map(region_of, (*pictures, condition))
    )
    if upper is None and lower is None:
        return track(result, mask)
    if mask is None and np.ndim(condition) >= 2:
        seen = np.broadcast_to(np.asarray(condition, bool), result.shape)
        upper, lower = within(upper, seen), within(lower, ~seen)
    return track(result, upper if lower is None else pasted(lower, upper))

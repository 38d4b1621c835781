"""Hooks in `scipy.signal`: filtered pictures keep what they show."""

from types import ModuleType
from typing import Any

from .hooks import after, first_argument
from .provenance import pixelwise, region_of, track

FILTERS = ("medfilt", "medfilt2d", "order_filter", "sepfir2d", "wiener")
"""Functions whose result is as large as their first argument."""
CONVOLUTIONS = ("convolve", "convolve2d", "correlate", "correlate2d", "fftconvolve", "oaconvolve")
"""Functions whose result may also have less or more on all sides, equally, than their first argument."""


def install(module: ModuleType) -> None:
    """Hook `scipy.signal`."""
    for name in FILTERS:
        after(module, name, pixelwise)
    for name in CONVOLUTIONS:
        after(module, name, _convolved)


def _convolved(result: Any, *args: Any, **kwargs: Any) -> Any:
    region = region_of(first_argument(args, kwargs))
    if region is None or result.ndim < 2 or not result.size:
        return result
    size = (result.shape[1], result.shape[0])
    left, top = ((new - old) / 2 for new, old in zip(size, region.size, strict=True))
    return track(result, region.moved((1, 0, -left, 0, 1, -top), size))

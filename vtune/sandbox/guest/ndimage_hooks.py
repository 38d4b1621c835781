"""Hooks in `scipy.ndimage`: filters keep what their pictures show, and rotated pictures are followed."""

import math
from types import ModuleType
from typing import Any

from .hooks import after, argument, first_argument
from .provenance import region_of, track

AS_A_WHOLE = (
    "zoom",
    "gaussian_filter",
    "uniform_filter",
    "median_filter",
    "minimum_filter",
    "maximum_filter",
    "percentile_filter",
    "rank_filter",
    "sobel",
    "prewitt",
    "laplace",
    "gaussian_laplace",
    "gaussian_gradient_magnitude",
    "grey_erosion",
    "grey_dilation",
    "grey_opening",
    "grey_closing",
    "convolve",
    "correlate",
    "gaussian_filter1d",
    "uniform_filter1d",
    "minimum_filter1d",
    "maximum_filter1d",
    "convolve1d",
    "correlate1d",
    "generic_filter",
    "generic_gradient_magnitude",
    "morphological_gradient",
    "morphological_laplace",
    "binary_erosion",
    "binary_dilation",
    "binary_opening",
    "binary_closing",
    "binary_fill_holes",
)
"""Functions whose result shows the same part of the input as their first argument."""


def install(module: ModuleType) -> None:
    """Hook `scipy.ndimage`."""
    for name in AS_A_WHOLE:
        after(module, name, _whole_result)
    after(module, "rotate", _turned)


def _whole_result(result: Any, *args: Any, **kwargs: Any) -> Any:
    source = first_argument(args, kwargs)
    region = region_of(source)
    if region is None or result is None or result.ndim != source.ndim:
        return result
    return track(result, region.scaled((result.shape[1], result.shape[0])))


def _turned(result: Any, *args: Any, **kwargs: Any) -> Any:
    """Rotated about the centre, from the first axis towards the second."""
    region = region_of(first_argument(args, kwargs))
    if region is None or result is None:
        return result
    axes = {axis % result.ndim for axis in argument(args, kwargs, 2, "axes", (1, 0))}
    if axes != {0, 1}:
        return track(result, None)
    turn = math.radians(argument(args, kwargs, 1, "angle"))
    c, s = math.cos(turn), math.sin(turn)
    width, height = result.shape[1], result.shape[0]
    across, down = region.size[0] / 2, region.size[1] / 2
    x, y = width / 2, height / 2
    matrix = (c, -s, across - c * x + s * y, s, c, down - s * x - c * y)
    return track(result, region.moved(matrix, (width, height)))

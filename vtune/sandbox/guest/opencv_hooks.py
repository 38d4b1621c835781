"""Hooks in OpenCV: regions through its functions and files, windows as files."""

import functools
import math
import os
from typing import Any

import cv2
import numpy as np

from . import paths
from .hooks import Tracker, after, argument, first_argument, free_name, transposed
from .maps import Matrix, Size, inverted
from .provenance import listing, region_of, track
from .regions import Region, together

AS_A_WHOLE = (
    "resize",
    "pyrDown",
    "pyrUp",
    "cvtColor",
    "GaussianBlur",
    "stackBlur",
    "pyrMeanShiftFiltering",
    "blur",
    "boxFilter",
    "medianBlur",
    "bilateralFilter",
    "filter2D",
    "sepFilter2D",
    "convertScaleAbs",
    "addWeighted",
    "equalizeHist",
    "Canny",
    "Sobel",
    "Scharr",
    "Laplacian",
    "magnitude",
    "phase",
    "erode",
    "dilate",
    "morphologyEx",
    "LUT",
    "normalize",
    "bitwise_not",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "add",
    "subtract",
    "multiply",
    "divide",
    "absdiff",
    "scaleAdd",
    "pow",
    "sqrt",
    "exp",
    "log",
    "compare",
    "max",
    "min",
    "copyTo",
    "transform",
    "illuminationChange",
    "colorChange",
    "textureFlattening",
    "inpaint",
    "distanceTransform",
    "inRange",
    "applyColorMap",
    "adaptiveThreshold",
    "fastNlMeansDenoising",
    "fastNlMeansDenoisingColored",
    "detailEnhance",
    "edgePreservingFilter",
    "stylization",
    "merge",
    "extractChannel",
    "blendLinear",
    "drawKeypoints",
)
"""OpenCV functions whose result shows the same part of the input as their first argument."""
SEVERAL = ("split", "cartToPolar", "spatialGradient", "decolor", "pencilSketch")
"""Those that return several such pictures."""
MASKS = {
    "bitwise_and": (3, 2),
    "bitwise_or": (3, 2),
    "bitwise_xor": (3, 2),
    "bitwise_not": (2, 1),
    "copyTo": (1, 2),
}
"""Those that leave everything outside a mask black -> positions of the arguments `mask` and `dst`."""


def install(tracker: Tracker) -> None:
    """Hook `cv2`."""
    for name in AS_A_WHOLE:
        if hasattr(cv2, name):
            after(cv2, name, functools.partial(_masked, MASKS[name]) if name in MASKS else _whole_result)
    after(cv2, "threshold", lambda result, *a, **k: (result[0], _whole_result(result[1], *a, **k)))
    for name in SEVERAL:
        after(cv2, name, lambda result, *a, **k: type(result)(_whole_result(one, *a, **k) for one in result))
    after(cv2, "kmeans", _classes)
    after(cv2, "flip", _flipped)
    after(cv2, "rotate", _rotated)
    after(
        cv2,
        "transpose",
        lambda result, *a, **k: track(result, transposed(region_of(first_argument(a, k)), 5)),
    )
    after(cv2, "copyMakeBorder", _bordered)
    after(cv2, "warpAffine", _warped)
    after(cv2, "warpPerspective", _warped)
    after(cv2, "remap", _remapped)
    after(cv2, "getRectSubPix", _cut_around)
    after(cv2, "hconcat", lambda result, src, *_a, **_k: _joined(result, src, 1))
    after(cv2, "vconcat", lambda result, src, *_a, **_k: _joined(result, src, 0))
    after(cv2, "createCLAHE", lambda result, *_a, **_k: _Equalizer(result))
    _hook_buffers(tracker)
    _hook_files(tracker)


class _Equalizer:
    """Wraps OpenCV's local contrast object so that its results know what they show."""

    def __init__(self, clahe: Any) -> None:
        self._clahe = clahe

    def apply(self, src: Any, *args: Any) -> Any:
        return _whole_result(self._clahe.apply(src, *args), src)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clahe, name)


def _whole_result(result: Any, *args: Any, **kwargs: Any) -> Any:
    source = first_argument(args, kwargs)
    region = region_of(source[0] if isinstance(source, (list, tuple)) and source else source)
    if region is None or not isinstance(result, np.ndarray) or result.ndim < 2:
        return result
    return track(result, region.scaled(_size(result)))


def _masked(at: tuple[int, int], result: Any, *args: Any, **kwargs: Any) -> Any:
    """If there is a mask, only the part of the first argument in the box around the mask, in its place."""
    result = _whole_result(result, *args, **kwargs)
    mask, into = argument(args, kwargs, at[0], "mask"), argument(args, kwargs, at[1], "dst")
    region = region_of(result)
    if mask is None or into is not None or region is None:
        return result
    x, y, width, height = cv2.boundingRect(np.asarray(mask, np.uint8))
    cut = region.moved((1, 0, x, 0, 1, y), (width, height)) if width else None
    return track(result, cut and cut.moved((1, 0, -x, 0, 1, -y), _size(result)))


def _classes(result: Any, *args: Any, **kwargs: Any) -> Any:
    """The class of each pixel that a flattened picture lists."""
    distance, labels, centers = result
    return distance, listing(labels, getattr(first_argument(args, kwargs), "pixels", None)), centers


def _flipped(result: Any, *args: Any, **kwargs: Any) -> Any:
    code = argument(args, kwargs, 1, "flipCode")
    method = 1 if code == 0 else 0 if code > 0 else 3
    return track(result, transposed(region_of(first_argument(args, kwargs)), method))


def _rotated(result: Any, *args: Any, **kwargs: Any) -> Any:
    code = argument(args, kwargs, 1, "rotateCode")
    return track(result, transposed(region_of(first_argument(args, kwargs)), (4, 3, 2)[code]))


def _bordered(result: Any, *args: Any, **kwargs: Any) -> Any:
    region = region_of(first_argument(args, kwargs))
    top, left = argument(args, kwargs, 1, "top"), argument(args, kwargs, 3, "left")
    return track(result, region and region.moved((1, 0, -left, 0, 1, -top), _size(result)))


def _warped(result: Any, *args: Any, **kwargs: Any) -> Any:
    region = region_of(first_argument(args, kwargs))
    if region is None:
        return result
    given = np.asarray(argument(args, kwargs, 1, "M"), float)
    matrix: Matrix | None = tuple(float(value) for value in given.ravel())
    if not argument(args, kwargs, 4, "flags", 0) & cv2.WARP_INVERSE_MAP:
        matrix = inverted(matrix or ())
    return track(result, region.moved(matrix, _size(result)) if matrix else None)


def _remapped(result: Any, *args: Any, **kwargs: Any) -> Any:
    """The affine map closest to the given one: through three corners."""
    region = region_of(first_argument(args, kwargs))
    across, down = argument(args, kwargs, 1, "map1"), argument(args, kwargs, 2, "map2")
    if region is None:
        return result
    if across.ndim == 3:
        across, down = across[..., 0], across[..., 1]
    if min(across.shape) < 2:
        return result
    height, width = across.shape
    rows = (
        (
            (plane[0, -1] - plane[0, 0]) / (width - 1),
            (plane[-1, 0] - plane[0, 0]) / (height - 1),
            plane[0, 0],
        )
        for plane in (across, down)
    )
    return track(result, region.moved(tuple(float(value) for row in rows for value in row), _size(result)))


def _cut_around(result: Any, *args: Any, **kwargs: Any) -> Any:
    region = region_of(first_argument(args, kwargs))
    x, y = argument(args, kwargs, 2, "center")
    width, height = _size(result)
    shift = (1, 0, x - (width - 1) / 2, 0, 1, y - (height - 1) / 2)
    return track(result, region and region.moved(shift, (width, height)))


def _joined(result: Any, pictures: Any, axis: int) -> Any:
    parts: list[Region | None] = []
    start = 0
    for picture in pictures:
        region = region_of(picture)
        shift = (1, 0, -start, 0, 1, 0) if axis == 1 else (1, 0, 0, 0, 1, -start)
        parts.append(region and region.moved(shift, _size(result)))
        start += picture.shape[axis]
    return track(result, together(parts))


def _size(array: Any) -> Size:
    return array.shape[1], array.shape[0]


def _hook_buffers(tracker: Tracker) -> None:
    decode, encode = cv2.imdecode, cv2.imencode

    @functools.wraps(decode)
    def imdecode(buf: Any, flags: int = cv2.IMREAD_COLOR, *args: Any) -> Any:
        array = decode(buf, flags, *args)
        content = np.ascontiguousarray(buf).data.cast("B")
        return _read(array, tracker.region_of_content(content, upright=_turns(flags)))

    @functools.wraps(encode)
    def imencode(ext: str, img: Any, params: Any = ()) -> Any:
        done, content = encode(ext, img, params)
        tracker.note_content(content.data.cast("B"), region_of(img))
        return done, content

    cv2.imdecode, cv2.imencode = imdecode, imencode


def _hook_files(tracker: Tracker) -> None:
    read, write = cv2.imread, cv2.imwrite

    @functools.wraps(read)
    def imread(filename: Any, flags: int = cv2.IMREAD_COLOR) -> Any:
        path = paths.for_reading(os.fspath(filename), tracker.inputs)
        return _read(read(path, flags), tracker.region_of_file(path, upright=_turns(flags)))

    @functools.wraps(write)
    def imwrite(filename: Any, img: Any, params: Any = ()) -> bool:
        path = paths.for_writing(os.fspath(filename), tracker.root, tracker.inputs)
        done = bool(write(path, img, params))
        if done:
            tracker.note_saved(path, region_of(img))
        return done

    def imshow(winname: str, mat: Any) -> None:
        imwrite(free_name("shown"), mat)

    for name, function in (("imread", imread), ("imwrite", imwrite), ("imshow", imshow)):
        setattr(cv2, name, function)
    # There are no windows to wait for, name or close.
    cv2.waitKey = lambda delay=0: -1
    for name in ("namedWindow", "resizeWindow", "moveWindow", "destroyWindow", "destroyAllWindows"):
        setattr(cv2, name, lambda *_args, **_kwargs: None)


def _turns(flags: int) -> bool:
    """Whether reading applies the EXIF orientation."""
    return flags >= 0 and not flags & cv2.IMREAD_IGNORE_ORIENTATION


def _read(array: Any, region: Region | None) -> Any:
    if array is None or region is None or not _same_shape(_size(array), region.size):
        return array
    return track(array, region.scaled(_size(array)))


def _same_shape(a: Size, b: Size) -> bool:
    """Whether two sizes have the same aspect ratio, up to the rounding of a reduced read."""
    return math.isclose(a[0] / a[1], b[0] / b[1], rel_tol=1.5 / min(*a, *b))

"""Hooks in PIL, OpenCV and numpy that follow regions, keep crops inside the picture and capture windows.

They are installed once in the fork server. A hook never changes what honest code computes, with one
exception: a PIL crop is clamped to its picture instead of being padded with black.
"""

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL.Image

from . import paths
from .provenance import Cuts, Matrix, Region, Size, TrackedArray, region_of, track, whole

AS_A_WHOLE = (
    "resize",
    "pyrDown",
    "pyrUp",
    "cvtColor",
    "GaussianBlur",
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
)
"""Functions of OpenCV whose result shows the same part of the input as their first argument."""

ORIENTATIONS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
"""EXIF orientation -> PIL's number of the transposition that puts the picture upright."""


class Tracker:
    """What a session remembers about its pictures across calls."""

    def __init__(self) -> None:
        self.cuts = Cuts()
        self.root = ""
        """The workspace, absolute and resolved."""
        self.inputs: tuple[str, ...] = ()
        """File names of the input images."""
        self.sources: dict[str, tuple[Region, int]] = {}
        """Input file name -> its region and its EXIF orientation."""
        self.saved: dict[str, Region | None] = {}
        """Absolute path -> region of the picture last saved there by a hooked function."""
        self.written: list[str] = []
        """Absolute paths that the current call saved to, in order."""

    def add_input(self, name: str, size: Size, orientation: int) -> Region:
        """Register the next input image; returns its region."""
        region = whole(len(self.inputs), size, self.cuts)
        self.inputs += (name,)
        self.sources[name] = (region, orientation)
        return region

    def start_call(self) -> None:
        """Forget what belongs to the call before."""
        self.cuts.clear()
        self.written.clear()

    def note_saved(self, path: str, region: Region | None) -> None:
        """Remember that a picture with this region was saved."""
        absolute = os.path.realpath(path)
        self.saved[absolute] = region
        self.written.append(absolute)

    def region_of_file(self, path: Any, *, upright: bool) -> Region | None:
        """The region of a picture file.

        Args:
            path: As given to the reading function.
            upright: Whether the reader turns pictures by their EXIF orientation.
        """
        if not isinstance(path, (str, os.PathLike)):
            return None
        source = self.sources.get(os.path.relpath(os.path.realpath(path), self.root))
        if source is None:
            return self.saved.get(os.path.realpath(path))
        region, orientation = source
        return (
            transposed(region, ORIENTATIONS[orientation])
            if upright and orientation in ORIENTATIONS
            else region
        )


def install() -> Tracker:
    """Hook the libraries; returns the tracker that their hooks report to."""
    tracker = Tracker()
    _hook_pil(tracker)
    _hook_numpy()
    _hook_cv2(tracker)
    return tracker


def free_name(stem: str) -> str:
    """The first of `stem_1.png`, `stem_2.png`, … that is not in the working folder."""
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


def _after(owner: Any, name: str, note: Callable[..., Any]) -> None:
    """Let `note(result, *arguments)` see each call of `owner.name` and say what it returns."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        return note(original(*args, **kwargs), *args, **kwargs)

    setattr(owner, name, hooked)


# --- PIL ---------------------------------------------------------------------------------------------------


def _hook_pil(tracker: Tracker) -> None:
    image = PIL.Image.Image
    # Nearly every method of PIL makes its result with _new: conversions, filters, copies, lookups.
    _after(image, "_new", _same_part)
    _after(image, "resize", _resized)
    _after(image, "reduce", _reduced)
    _after(
        image,
        "transpose",
        lambda result, self, method: track(result, transposed(region_of(self), int(method))),
    )
    _after(image, "transform", _transformed)
    _after(image, "paste", _pasted)
    _after(PIL.Image, "blend", _either)
    _after(PIL.Image, "fromarray", lambda result, *a, **k: track(result, region_of(_first(a, k))))
    _hook_crop(image)
    _hook_files(image, tracker)


def _same_part(result: Any, picture: Any, *_args: Any, **_kwargs: Any) -> Any:
    region = region_of(picture)
    return track(result, region.scaled(result.size)) if region else result


def _either(result: Any, im1: Any, im2: Any, alpha: float) -> Any:
    return track(result, region_of(im1) or region_of(im2))


def _resized(
    result: Any, picture: Any, size: Any, resample: Any = None, box: Any = None, reducing_gap: Any = None
) -> Any:
    return track(result, _stretched(region_of(picture), box, result.size))


def _reduced(result: Any, picture: Any, factor: Any, box: Any = None) -> Any:
    return track(result, _stretched(region_of(picture), box, result.size))


def _stretched(region: Region | None, box: Any, size: Size) -> Region | None:
    """The region of a box of a picture, stretched to a size; no box is the whole picture."""
    if region is None or box is None:
        return region and region.scaled(size)
    x0, y0, x1, y1 = box
    return region.moved(((x1 - x0) / size[0], 0, x0, 0, (y1 - y0) / size[1], y0), size)


def _transformed(
    result: Any, picture: Any, size: Any, method: Any, data: Any = None, *_a: Any, **_k: Any
) -> Any:
    region = region_of(picture)
    if region is not None and method == PIL.Image.Transform.AFFINE:
        return track(result, region.moved(tuple(data[:6]), result.size))
    if region is not None and method == PIL.Image.Transform.EXTENT:
        return track(result, _stretched(region, data, result.size))
    return result


def _pasted(result: None, canvas: Any, im: Any, box: Any = None, mask: Any = None) -> None:
    """An empty canvas takes over the region of the first picture pasted onto it (borders, padding)."""
    region = region_of(im)
    if region is None or region_of(canvas) is not None:
        return
    x, y = box[:2] if box else (0, 0)
    track(canvas, region.moved((1, 0, -x, 0, 1, -y), canvas.size))


def _hook_crop(image: Any) -> None:
    original = image.crop

    @functools.wraps(original)
    def crop(self: Any, box: Any = None) -> Any:
        if box is None:
            return original(self)
        x0, y0, x1, y1 = (round(side) for side in box)
        width, height = self.size
        inside = (max(x0, 0), max(y0, 0), min(x1, width), min(y1, height))
        if x0 <= x1 and y0 <= y1 and (inside[0] >= inside[2] or inside[1] >= inside[3]):
            raise ValueError(f"the crop box {(x0, y0, x1, y1)} holds no pixel of the {width}x{height} image")
        # A reversed box goes through as it is: PIL's own message explains it.
        result = original(self, inside if x0 <= x1 and y0 <= y1 else box)
        region = region_of(self)
        return track(result, region and region.moved((1, 0, inside[0], 0, 1, inside[1]), result.size))

    image.crop = crop


def _hook_files(image: Any, tracker: Tracker) -> None:
    opened, saved = PIL.Image.open, image.save

    @functools.wraps(opened)
    def open_(fp: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(fp, (str, os.PathLike)):
            fp = paths.for_reading(os.fspath(fp), tracker.inputs)
        picture = opened(fp, *args, **kwargs)
        region = tracker.region_of_file(fp, upright=False)
        return track(picture, region and region.scaled(picture.size))

    @functools.wraps(saved)
    def save(self: Any, fp: Any, *args: Any, **kwargs: Any) -> None:
        if not isinstance(fp, (str, os.PathLike)):
            saved(self, fp, *args, **kwargs)
            return
        path = paths.for_writing(os.fspath(fp), tracker.root, tracker.inputs)
        saved(self, path, *args, **kwargs)
        tracker.note_saved(path, region_of(self))

    def show(self: Any, *_args: Any, **_kwargs: Any) -> None:
        picture = self if self.mode in ("L", "RGB", "RGBA", "P", "1") else self.convert("RGB")
        picture.save(free_name("shown"))

    PIL.Image.open = open_
    image.save = save
    image.show = show


# --- numpy -------------------------------------------------------------------------------------------------


def _hook_numpy() -> None:
    for name in ("array", "asarray", "ascontiguousarray", "copy"):
        _after(np, name, _as_array)
    for name in ("zeros_like", "ones_like", "empty_like", "full_like"):
        _after(np, name, _as_canvas)


def _as_array(result: Any, thing: Any = None, *_args: Any, **_kwargs: Any) -> Any:
    region = region_of(thing)
    same = region is not None and result.ndim >= 2 and result.shape[1::-1] == region.size
    return track(result, region) if same else result


def _as_canvas(result: Any, *_args: Any, **_kwargs: Any) -> Any:
    """An empty canvas of the same size shows nothing of the picture."""
    if isinstance(result, TrackedArray):
        result.region = None
    return result


# --- OpenCV ------------------------------------------------------------------------------------------------


def _hook_cv2(tracker: Tracker) -> None:
    for name in AS_A_WHOLE:
        if hasattr(cv2, name):
            _after(cv2, name, _whole_result)
    _after(cv2, "threshold", lambda result, *a, **k: (result[0], _whole_result(result[1], *a, **k)))
    _after(
        cv2, "split", lambda result, *a, **k: type(result)(_whole_result(part, *a, **k) for part in result)
    )
    _after(cv2, "flip", _flipped)
    _after(cv2, "rotate", _rotated)
    _after(cv2, "transpose", lambda result, *a, **k: track(result, transposed(region_of(_first(a, k)), 5)))
    _after(cv2, "copyMakeBorder", _bordered)
    _after(cv2, "warpAffine", _warped)
    _hook_cv2_files(tracker)


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The first argument of a call, however it was given."""
    return next(iter((*args, *kwargs.values())), None)


def _whole_result(result: Any, *args: Any, **kwargs: Any) -> Any:
    source = _first(args, kwargs)
    region = region_of(source[0] if isinstance(source, (list, tuple)) and source else source)
    return track(result, region.scaled(_array_size(result))) if region else result


def _flipped(result: Any, *args: Any, **kwargs: Any) -> Any:
    code = _argument(args, kwargs, 1, "flipCode")
    return track(result, transposed(region_of(_first(args, kwargs)), {0: 1, 1: 0}.get(code, 3)))


def _rotated(result: Any, *args: Any, **kwargs: Any) -> Any:
    code = _argument(args, kwargs, 1, "rotateCode")
    return track(result, transposed(region_of(_first(args, kwargs)), (4, 3, 2)[code]))


def _bordered(result: Any, *args: Any, **kwargs: Any) -> Any:
    region = region_of(_first(args, kwargs))
    top, left = _argument(args, kwargs, 1, "top"), _argument(args, kwargs, 3, "left")
    return track(result, region and region.moved((1, 0, -left, 0, 1, -top), _array_size(result)))


def _warped(result: Any, *args: Any, **kwargs: Any) -> Any:
    region = region_of(_first(args, kwargs))
    matrix = np.asarray(_argument(args, kwargs, 1, "M"), float)
    if not _argument(args, kwargs, 4, "flags", 0) & cv2.WARP_INVERSE_MAP:
        matrix = cv2.invertAffineTransform(matrix)
    a, b, c, d, e, f = (float(value) for value in matrix.ravel())
    return track(result, region and region.moved((a, b, c, d, e, f), _array_size(result)))


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], at: int, name: str, default: Any = None) -> Any:
    return args[at] if len(args) > at else kwargs.get(name, default)


def _array_size(array: Any) -> Size:
    return array.shape[1], array.shape[0]


def _hook_cv2_files(tracker: Tracker) -> None:
    read, write = cv2.imread, cv2.imwrite

    @functools.wraps(read)
    def imread(filename: Any, flags: int = cv2.IMREAD_COLOR) -> Any:
        path = paths.for_reading(os.fspath(filename), tracker.inputs)
        array = read(path, flags)
        turns = flags >= 0 and not flags & cv2.IMREAD_IGNORE_ORIENTATION
        region = tracker.region_of_file(path, upright=turns)
        if array is None or region is None or not _same_shape(_array_size(array), region.size):
            return array
        return track(array, region.scaled(_array_size(array)))

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
    # There is no window to wait for, to name or to close.
    cv2.waitKey = lambda delay=0: -1
    for name in ("namedWindow", "resizeWindow", "moveWindow", "destroyWindow", "destroyAllWindows"):
        setattr(cv2, name, lambda *_args, **_kwargs: None)


def _same_shape(a: Size, b: Size) -> bool:
    """Whether two sizes have one aspect ratio, up to the rounding of a reduced reading."""
    return math.isclose(a[0] / a[1], b[0] / b[1], rel_tol=1.5 / min(*a, *b))

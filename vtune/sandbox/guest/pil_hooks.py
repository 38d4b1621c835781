"""Hooks in PIL: regions through its methods and files, crops kept inside the picture, windows as files."""

import functools
import io
import os
from pathlib import PurePath
from typing import Any

import cv2
import numpy as np
import PIL.Image

from . import paths
from .hooks import Tracker, after, first_argument, free_name, transposed
from .maps import Matrix, Size
from .provenance import region_of, track, within
from .regions import Region, pasted

PLAIN_PNG = {"compress_level": 1, "compress_type": 3}
"""Light compression (run lengths): a 400 x 300 photograph in 10 ms instead of 27, and no larger."""
RGB_MODES = {"RGB", "L"}
"""Modes whose PNG OpenCV writes, with the same pixels, in half that time."""

# Bound before they are hooked.
_encode, _reorder = cv2.imencode, cv2.cvtColor


def install(tracker: Tracker) -> None:
    """Hook `PIL.Image`."""
    image: Any = PIL.Image.Image
    # Its save function registers the file's own ending, which would outlast the session in this process.
    PIL.Image.SAVE.pop("SPIDER", None)
    # Almost every PIL method creates its result with _new: conversions, filters, copies, lookups.
    after(image, "_new", _same_part)
    after(image, "resize", _resized)
    after(image, "reduce", _reduced)
    after(
        image,
        "transpose",
        lambda result, self, method: track(result, transposed(region_of(self), int(method))),
    )
    after(image, "transform", _transformed)
    after(image, "paste", _pasted)
    after(PIL.Image, "blend", _either)
    after(PIL.Image, "alpha_composite", _either)
    after(PIL.Image, "fromarray", lambda result, *a, **k: track(result, region_of(first_argument(a, k))))
    after(PIL.Image, "frombytes", _from_memory)
    after(PIL.Image, "frombuffer", _from_memory)
    image.__copy__ = lambda self: self.copy()
    image.__deepcopy__ = lambda self, _memo: self.copy()
    _hook_crop(image)
    _hook_files(image, tracker)


def _from_memory(result: Any, mode: str, size: Any, data: Any = None, *_args: Any, **_kwargs: Any) -> Any:
    """The levels of an array of the same size, as they are."""
    region = region_of(data)
    return track(result, region) if region and region.size == result.size else result


def _same_part(result: Any, picture: Any, *_args: Any, **_kwargs: Any) -> Any:
    region = region_of(picture)
    return track(result, region.scaled(result.size)) if region else result


def _either(result: Any, im1: Any, im2: Any, *_args: Any, **_kwargs: Any) -> Any:
    return track(result, region_of(im1) or region_of(im2))


def _resized(
    result: Any, picture: Any, size: Any, resample: Any = None, box: Any = None, reducing_gap: Any = None
) -> Any:
    return track(result, _stretched(region_of(picture), box, result.size))


def _reduced(result: Any, picture: Any, factor: Any, box: Any = None) -> Any:
    return track(result, _stretched(region_of(picture), box, result.size))


def _stretched(region: Region | None, box: Any, size: Size) -> Region | None:
    """The region of a box in a picture, stretched to a size; no box means the whole picture."""
    if region is None or box is None:
        return region and region.scaled(size)
    x0, y0, x1, y1 = box
    return region.moved(((x1 - x0) / size[0], 0, x0, 0, (y1 - y0) / size[1], y0), size)


def _transformed(
    result: Any, picture: Any, size: Any, method: Any, data: Any = None, *_a: Any, **_k: Any
) -> Any:
    region = region_of(picture)
    if region is None:
        return result
    if data is None and hasattr(method, "getdata"):
        method, data = method.getdata()
    kinds = PIL.Image.Transform
    if method == kinds.EXTENT:
        return track(result, _stretched(region, data, result.size))
    matrix: Matrix | None = None
    if method == kinds.AFFINE:
        matrix = tuple(float(value) for value in data[:6])
    elif method == kinds.PERSPECTIVE:
        matrix = (*(float(value) for value in data[:8]), 1.0)
    elif method == kinds.QUAD:
        matrix = _from_quad(data, result.size)
    return track(result, region.moved(matrix, result.size) if matrix else None)


def _from_quad(corners: Any, size: Size) -> Matrix:
    """The homography closest to PIL's QUAD: corners of the source, counter-clockwise from the top left."""
    width, height = size
    ours = np.array([(0, 0), (0, height), (width, height), (width, 0)], np.float32)
    matrix = cv2.getPerspectiveTransform(ours, np.array(corners[:8], np.float32).reshape(4, 2))
    return tuple(float(value) for value in matrix.ravel())


def _pasted(result: None, canvas: Any, im: Any, box: Any = None, mask: Any = None) -> None:
    if isinstance(box, PIL.Image.Image):
        box, mask = None, box  # a picture in place of the box is a mask
    region = region_of(im)
    x, y = box[:2] if box else (0, 0)
    if region is None:
        size = im.size if isinstance(im, PIL.Image.Image) else mask.size if mask else canvas.size
        if (x, y) == (0, 0) and size == canvas.size and (not box or tuple(box[2:]) in ((), size)):
            # Covered by a colour or something else; a mask preserves what is outside it.
            track(canvas, within(region_of(canvas), _opacity(mask) < 255) if mask else None)
        return
    if mask is not None:
        region = region if region_of(mask) else within(region, _opacity(mask) > 0)
    track(canvas, pasted(region_of(canvas), region and region.moved((1, 0, -x, 0, 1, -y), canvas.size)))


def _opacity(mask: Any) -> Any:
    """How opaque a mask is at each pixel, from 0 to 255; shape (h, w)."""
    bands = mask.getbands()
    return np.asarray(mask.getchannel(bands[-1]) if len(bands) > 1 else mask.convert("L"))


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
        # A reversed box is passed on: PIL's own error explains it.
        result = original(self, inside if x0 <= x1 and y0 <= y1 else box)
        region = region_of(self)
        return track(result, region and region.moved((1, 0, inside[0], 0, 1, inside[1]), result.size))

    image.crop = crop


def _hook_files(image: Any, tracker: Tracker) -> None:
    opened, saved, made = PIL.Image.open, image.save, PIL.Image.new

    @functools.wraps(opened)
    def open_(fp: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(fp, (str, os.PathLike)):
            fp = paths.for_reading(os.fspath(fp), tracker.inputs)
        picture = opened(fp, *args, **kwargs)
        region = _region_behind(fp, tracker)
        return track(picture, region and region.scaled(picture.size))

    @functools.wraps(saved)
    def save(self: Any, fp: Any, format: str | None = None, **params: Any) -> None:
        if not isinstance(fp, (str, os.PathLike)):
            saved(self, fp, format, **params)
            if isinstance(fp, io.BytesIO):
                tracker.note_content(fp.getvalue(), region_of(self))
            return
        path = paths.for_writing(os.fspath(fp), tracker.root, tracker.inputs)
        _write(self, path, format, params)
        tracker.note_saved(path, region_of(self))

    def _write(self: Any, path: str, format: str | None, params: dict[str, Any]) -> None:
        kind = format or PurePath(path).suffix[1:]
        if kind.upper() != "PNG" or {"compress_level", "optimize", "save_all"} & set(params):
            saved(self, path, format, **params)
        elif self.mode in RGB_MODES and not params and not {"icc_profile", "transparency"} & set(self.info):
            pixels = np.asarray(self)
            pixels = _reorder(pixels, cv2.COLOR_RGB2BGR) if self.mode == "RGB" else pixels
            with open(path, "wb") as file:
                file.write(_encode(".png", pixels)[1].data)
        else:
            saved(self, path, format, **PLAIN_PNG, **params)

    def show(self: Any, *_args: Any, **_kwargs: Any) -> None:
        picture = self if self.mode in ("L", "RGB", "RGBA", "P", "1") else self.convert("RGB")
        picture.save(free_name("shown"))

    @functools.wraps(made)
    def new(mode: str, size: Any, color: Any = 0) -> Any:
        # Without a colour it would show uninitialised memory, perhaps from another session.
        return made(mode, size, 0 if color is None else color)

    PIL.Image.new = new
    PIL.Image.open = open_
    image.save = save
    image.show = show


def _region_behind(fp: Any, tracker: Tracker) -> Region | None:
    """The region of the picture in a path, an open file or a buffer."""
    if isinstance(fp, io.BytesIO):
        return tracker.region_of_content(fp.getbuffer(), upright=False)
    return tracker.region_of_file(fp if isinstance(fp, str) else getattr(fp, "name", None), upright=False)

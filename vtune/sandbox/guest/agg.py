"""Hooks in matplotlib: its pictures and files know which part of an input they show.

They work whether pyplot makes the figures or code that bypasses it.
"""

import functools
import io
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import PIL.Image

from .hooks import after, transposed
from .maps import compose, inverted
from .provenance import pixelwise, region_of, track
from .regions import Region, together


def hook_colors(module: ModuleType) -> None:
    """Hook `matplotlib.colors`: pictures in false colours that code makes without a figure."""
    colors: Any = module
    after(colors.Colormap, "__call__", pixelwise)
    after(colors, "hsv_to_rgb", pixelwise)


def hook_images(module: ModuleType) -> None:
    """Hook `matplotlib.image`."""
    image: Any = module
    set_data, imread, imsave = image.AxesImage.set_data, image.imread, image.imsave

    def set_data_and_region(self: Any, data: Any) -> None:
        """Record which part of an input an axes shows; matplotlib itself keeps a plain copy."""
        self.region = region_of(data)
        set_data(self, data)

    @functools.wraps(imsave)
    def write(fname: Any, arr: Any, **kwargs: Any) -> None:
        """Matplotlib creates its own picture, pixel by pixel; here it only gets its region."""
        content = io.BytesIO()
        named = str(fname).rpartition(".")[2] if isinstance(fname, str) else "png"
        kind = kwargs.pop("format", None) or named
        imsave(content, arr, format=kind, **kwargs)
        with PIL.Image.open(content) as picture:
            region = region_of(arr)
            if kwargs.get("origin") == "lower":
                region = transposed(region, 1)
            shown = picture.convert("RGB") if kind in ("jpg", "jpeg") else picture.convert("RGBA")
            track(shown, region).save(fname, "JPEG" if kind in ("jpg", "jpeg") else kind)

    @functools.wraps(imread)
    def read(fname: Any, format: Any = None) -> Any:
        """Record regions for PNG files, which matplotlib opens without PIL's hooked `open`."""
        array = imread(fname, format)
        return track(array, region_of(PIL.Image.open(fname)))

    image.AxesImage.set_data = set_data_and_region
    image.imread, image.imsave = read, write


def hook_canvas(module: ModuleType) -> None:
    """Hook `matplotlib.backends.backend_agg`, which draws the figures of all backends that make files."""
    canvas: Any = module.FigureCanvasAgg

    def method(kind: str) -> Any:
        return lambda self, filename_or_obj, **_options: _save(self, filename_or_obj, kind)

    canvas.print_png, canvas.print_webp = method("PNG"), method("WEBP")
    canvas.print_jpg = canvas.print_jpeg = method("JPEG")
    buffer_rgba = canvas.buffer_rgba

    @functools.wraps(buffer_rgba)
    def levels(self: Any) -> memoryview:
        """Memory of a tracked array: arrays made from it know what the figure shows."""
        array = np.asarray(buffer_rgba(self))
        return memoryview(track(array, _shown(self.figure, (array.shape[1], array.shape[0]))))

    canvas.buffer_rgba = levels


def _save(canvas: Any, file: Any, kind: str) -> None:
    canvas.draw()
    PIL.Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").save(file, kind)


def _shown(figure: Any, size: tuple[int, int]) -> Region | None:
    """What a figure of `size` pixels shows of the inputs."""
    return together(
        [_drawn(axes, image, size) for axes in _with_insets(figure.axes) for image in _uncovered(axes)]
    )


def _with_insets(axes: Iterable[Any]) -> Iterator[Any]:
    """All axes of a figure, including those made by `inset_axes`, which only their parents list."""
    for one in axes:
        yield one
        yield from _with_insets(one.child_axes)


def _uncovered(axes: Any) -> list[Any]:
    """The images of an axes, except those completely hidden under a later one."""
    images = [image for image in axes.images if image.get_visible()]
    return [
        image
        for at, image in enumerate(images)
        if not any(_covers(later, image) for later in images[at + 1 :])
    ]


def _covers(upper: Any, lower: Any) -> bool:
    """Whether an opaque image covers another one completely."""
    if upper.get_alpha() not in (None, 1):
        return False
    spans = zip(*(np.reshape(image.get_extent(), (2, 2)) for image in (upper, lower)), strict=True)
    return all(min(over) <= min(under) and max(under) <= max(over) for over, under in spans)


def _drawn(axes: Any, image: Any, size: tuple[int, int]) -> Region | None:
    """What a figure of `size` pixels shows of an input through an image in its axes, and where."""
    region = getattr(image, "region", None)
    if not isinstance(region, Region):
        return None
    left, right, bottom, top = image.get_extent()
    if left == right or bottom == top:
        return None
    width, height = region.size
    first, last = (top, bottom) if getattr(image, "origin", "upper") == "upper" else (bottom, top)
    # Where the image's own corners (0, 0), (width, 0), (0, height) are drawn: figures count from below.
    corners = axes.transData.transform([(left, first), (right, first), (left, last)])
    (ox, oy), (ax, ay), (bx, by) = ((x, size[1] - y) for x, y in corners)
    there = ((ax - ox) / width, (bx - ox) / height, ox, (ay - oy) / width, (by - oy) / height, oy)
    back = inverted(there)
    window = _window(axes, (left, right, first, last), region.size)
    if back is None or window is None:
        return None
    # The axes' limits crop the image: first as a separate picture, then mapped back onto the figure.
    x0, y0, x1, y1 = window
    cut = region.moved((1, 0, x0, 0, 1, y0), (x1 - x0, y1 - y0))
    return cut and cut.moved(compose((1, 0, -x0, 0, 1, -y0), back), size)


def _window(
    axes: Any, extent: tuple[float, float, float, float], size: tuple[int, int]
) -> tuple[int, int, int, int] | None:
    """The pixels of an image within the limits of its axes; None if there are none."""
    left, right, first, last = extent
    across = sorted((limit - left) / (right - left) * size[0] for limit in axes.get_xlim())
    down = sorted((limit - first) / (last - first) * size[1] for limit in axes.get_ylim())
    x0, x1 = (min(max(round(x), 0), size[0]) for x in across)
    y0, y1 = (min(max(round(y), 0), size[1]) for y in down)
    return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None

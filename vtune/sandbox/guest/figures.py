"""The matplotlib backend of a session: `plt.show()` saves each figure as a picture and closes it.

Matplotlib loads it by name (`module://guest.figures`) when a model's code first imports pyplot.
"""

import functools
import io
from collections.abc import Iterable, Iterator
from typing import Any

import matplotlib
import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import PIL.Image
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

from .hooks import free_name, transposed
from .maps import compose, inverted
from .provenance import region_of, track
from .regions import Region, together

_set_data = matplotlib.image.AxesImage.set_data
_imread, _imsave = matplotlib.image.imread, matplotlib.image.imsave


def _set_data_and_region(self: Any, data: Any) -> None:
    """Remember which part of an input an axes shows; matplotlib itself keeps a plain copy."""
    self.region = region_of(data)
    _set_data(self, data)


@functools.wraps(_imsave)
def _write(fname: Any, arr: Any, **kwargs: Any) -> None:
    """Matplotlib makes a picture of its own, pixel by pixel; only the region is put to it here."""
    content = io.BytesIO()
    kind = kwargs.pop("format", None) or (str(fname).rpartition(".")[2] if isinstance(fname, str) else "png")
    _imsave(content, arr, format=kind, **kwargs)
    with PIL.Image.open(content) as picture:
        region = region_of(arr)
        if kwargs.get("origin") == "lower":
            region = transposed(region, 1)
        shown = picture.convert("RGB") if kind in ("jpg", "jpeg") else picture.convert("RGBA")
        track(shown, region).save(fname, "JPEG" if kind in ("jpg", "jpeg") else kind)


@functools.wraps(_imread)
def _read(fname: Any, format: Any = None) -> Any:
    """Matplotlib opens PNG files past PIL's own `open`."""
    array = _imread(fname, format)
    return track(array, region_of(PIL.Image.open(fname)))


matplotlib.image.AxesImage.set_data = _set_data_and_region
matplotlib.image.imread = _read
matplotlib.image.imsave = _write


class FigureCanvas(FigureCanvasAgg):  # type: ignore[misc]
    """Draws with Agg; its files know which part of an input they show."""

    def print_png(self, filename_or_obj: Any, **_options: Any) -> None:
        """Save the figure as PNG."""
        self._save(filename_or_obj, "PNG")

    def print_jpg(self, filename_or_obj: Any, **_options: Any) -> None:
        """Save the figure as JPEG."""
        self._save(filename_or_obj, "JPEG")

    def print_webp(self, filename_or_obj: Any, **_options: Any) -> None:
        """Save the figure as WebP."""
        self._save(filename_or_obj, "WEBP")

    print_jpeg = print_jpg

    def _save(self, file: Any, kind: str) -> None:
        super().draw()
        picture = PIL.Image.fromarray(np.asarray(self.buffer_rgba())).convert("RGB")
        regions = [
            _drawn(axes, image, picture.size)
            for axes in _with_insets(self.figure.axes)
            for image in _uncovered(axes)
        ]
        track(picture, together(regions)).save(file, kind)


def _with_insets(axes: Iterable[Any]) -> Iterator[Any]:
    """All axes of a figure: those that `inset_axes` has made are known to their parents alone."""
    for one in axes:
        yield one
        yield from _with_insets(one.child_axes)


def _uncovered(axes: Any) -> list[Any]:
    """The images of an axes, without those that lie wholly under a later one."""
    images = [image for image in axes.images if image.get_visible()]
    return [
        image
        for at, image in enumerate(images)
        if not any(_covers(later, image) for later in images[at + 1 :])
    ]


def _covers(upper: Any, lower: Any) -> bool:
    """Whether an opaque image lies over all of another."""
    if upper.get_alpha() not in (None, 1):
        return False
    spans = zip(*(np.reshape(image.get_extent(), (2, 2)) for image in (upper, lower)), strict=True)
    return all(min(over) <= min(under) and max(under) <= max(over) for over, under in spans)


def _drawn(axes: Any, image: Any, size: tuple[int, int]) -> Region | None:
    """What a figure of `size` pixels shows of an input by an image of its axes, and where it shows it."""
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
    # Limits of the axes cut the image: as a picture of its own first, then back onto the figure.
    x0, y0, x1, y1 = window
    cut = region.moved((1, 0, x0, 0, 1, y0), (x1 - x0, y1 - y0))
    return cut and cut.moved(compose((1, 0, -x0, 0, 1, -y0), back), size)


def _window(
    axes: Any, extent: tuple[float, float, float, float], size: tuple[int, int]
) -> tuple[int, int, int, int] | None:
    """The pixels of an image that lie within the limits of its axes; None where none do."""
    left, right, first, last = extent
    across = sorted((limit - left) / (right - left) * size[0] for limit in axes.get_xlim())
    down = sorted((limit - first) / (last - first) * size[1] for limit in axes.get_ylim())
    x0, x1 = (min(max(round(x), 0), size[0]) for x in across)
    y0, y1 = (min(max(round(y), 0), size[1]) for y in down)
    return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None


def _keep_backend(*_args: Any, **_kwargs: Any) -> None:
    """A session has one backend: code that asks for Agg gets its files, code that asks for windows too."""


matplotlib.use = _keep_backend
plt.switch_backend = _keep_backend


class FigureManager(FigureManagerBase):  # type: ignore[misc]
    """Turns windows into files."""

    @classmethod
    def pyplot_show(cls, *, block: bool | None = None) -> None:
        """Save all open figures, in order, and close them."""
        for number in plt.get_fignums():
            plt.figure(number).savefig(free_name("figure"))
        plt.close("all")


FigureCanvas.manager_class = FigureManager

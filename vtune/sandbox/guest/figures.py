"""The matplotlib backend of a session: `plt.show()` saves each figure as a picture and closes it.

Matplotlib loads it by name (`module://guest.figures`) when a model's code first imports pyplot.
"""

import functools
from typing import Any

import matplotlib
import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import PIL.Image
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

from .hooks import free_name
from .provenance import Region, region_of, together, track

_set_data = matplotlib.image.AxesImage.set_data
_imread = matplotlib.image.imread


def _set_data_and_region(self: Any, data: Any) -> None:
    """Remember which part of an input an axes shows; matplotlib itself keeps a plain copy."""
    self.region = region_of(data)
    _set_data(self, data)


@functools.wraps(_imread)
def _read(fname: Any, format: Any = None) -> Any:
    """Matplotlib opens PNG files past PIL's own `open`."""
    array = _imread(fname, format)
    return track(array, region_of(PIL.Image.open(fname)))


matplotlib.image.AxesImage.set_data = _set_data_and_region
matplotlib.image.imread = _read


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
        shown = [_visible(axes, image) for axes in self.figure.axes for image in _uncovered(axes)]
        # Axes and labels show nothing, so the picture is as good as its images.
        region = together(shown)
        track(picture, region and _resized(region, picture.size)).save(file, kind)


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


def _visible(axes: Any, image: Any) -> Region | None:
    """What an axes shows of an image: all of it, unless its limits say otherwise."""
    region = getattr(image, "region", None)
    if not isinstance(region, Region):
        return None
    left, right, bottom, top = image.get_extent()
    if left == right or bottom == top:
        return None
    # Limits as shares of the image, from its left and from its top.
    across = sorted((limit - left) / (right - left) for limit in axes.get_xlim())
    down = sorted((limit - top) / (bottom - top) for limit in axes.get_ylim())
    width, height = region.size
    if getattr(image, "origin", "upper") == "lower":
        down = [1 - share for share in reversed(down)]
    x0, x1 = (min(max(share, 0), 1) * width for share in across)
    y0, y1 = (min(max(share, 0), 1) * height for share in down)
    if x0 >= x1 or y0 >= y1:
        return None
    return region.moved(((x1 - x0) / width, 0, x0, 0, (y1 - y0) / height, y0), region.size)


def _resized(region: Region, size: tuple[int, int]) -> Region | None:
    return together([part.scaled(size) for part in region.parts])


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

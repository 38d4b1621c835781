"""The matplotlib backend of a session: `plt.show()` saves each figure as a picture and closes it.

Matplotlib loads it by name (`module://guest.figures`) when a model's code first imports pyplot.
"""

from typing import Any

import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import PIL.Image
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

from .hooks import free_name
from .provenance import Region, region_of

_set_data = matplotlib.image.AxesImage.set_data


def _set_data_and_region(self: Any, data: Any) -> None:
    """Remember which part of an input an axes shows; matplotlib itself keeps a plain copy."""
    self.region = region_of(data)
    _set_data(self, data)


matplotlib.image.AxesImage.set_data = _set_data_and_region


class FigureCanvas(FigureCanvasAgg):  # type: ignore[misc]
    """Draws with Agg; its files know which part of an input they show."""

    def print_png(self, filename_or_obj: Any, **_options: Any) -> None:
        """Save the figure as PNG."""
        self._save(filename_or_obj, "PNG")

    def print_jpg(self, filename_or_obj: Any, **_options: Any) -> None:
        """Save the figure as JPEG."""
        self._save(filename_or_obj, "JPEG")

    print_jpeg = print_jpg

    def _save(self, file: Any, kind: str) -> None:
        super().draw()
        picture = PIL.Image.fromarray(np.asarray(self.buffer_rgba())).convert("RGB")
        picture.region = self._region(picture.size)  # type: ignore[attr-defined]
        picture.save(file, kind)

    def _region(self, size: tuple[int, int]) -> Region | None:
        """A figure that shows a single picture has that picture's region; axes and labels show nothing."""
        shown = [getattr(picture, "region", None) for axes in self.figure.axes for picture in axes.images]
        return shown[0].scaled(size) if len(shown) == 1 and shown[0] is not None else None


class FigureManager(FigureManagerBase):  # type: ignore[misc]
    """Turns windows into files."""

    @classmethod
    def pyplot_show(cls, *, block: bool | None = None) -> None:
        """Save all open figures, in order, and close them."""
        for number in plt.get_fignums():
            plt.figure(number).savefig(free_name("figure"))
        plt.close("all")


FigureCanvas.manager_class = FigureManager

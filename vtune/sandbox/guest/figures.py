"""The matplotlib backend of a session: `plt.show()` saves each figure as a picture and closes it.

Matplotlib loads it by name (`module://guest.figures`) when a model's code first imports pyplot.
"""

from typing import Any

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

from .hooks import free_name


class FigureCanvas(FigureCanvasAgg):  # type: ignore[misc]
    """Draws with Agg, whose files know which part of an input they show (see `agg`)."""


def _keep_backend(*_args: Any, **_kwargs: Any) -> None:
    """Ignore the choice: a session has one backend, whether code asks for Agg or for windows."""


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

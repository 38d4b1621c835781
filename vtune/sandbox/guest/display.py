"""`IPython.display` for code written for a notebook: what it displays is saved as a picture."""

import io
import os
import sys
import types
from typing import Any

import PIL.Image

from .hooks import free_name


class Image:
    """Replaces the notebook's `IPython.display.Image`: a picture given as a file or as bytes."""

    def __init__(self, data: Any = None, filename: Any = None, **_layout: Any) -> None:
        # Like the original, it accepts a path as the data too.
        self.source = data if data is not None else filename
        if not isinstance(self.source, (str, bytes, os.PathLike)):
            raise ValueError("Image needs the bytes of a picture or the name of its file")

    def picture(self) -> PIL.Image.Image:
        """The decoded picture."""
        source = self.source
        return PIL.Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)


def display(*things: Any, **_options: Any) -> None:
    """Show each thing as a notebook would.

    Pictures become `shown_1.png`, …, figures `figure_1.png`, …; anything else is printed.
    """
    for thing in things:
        if isinstance(thing, Image):
            thing = thing.picture()
        if isinstance(thing, PIL.Image.Image):
            thing.show()
        elif hasattr(thing, "savefig"):
            thing.savefig(free_name("figure"))
        else:
            sys.stdout.write(f"{thing!r}\n")


def install() -> None:
    """Make `from IPython.display import display, Image` work, without IPython."""
    package, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    for name, thing in (("display", display), ("Image", Image), ("clear_output", _nothing)):
        setattr(module, name, thing)
    package.version_info = (9, 0)  # type: ignore[attr-defined]
    package.display = module  # type: ignore[attr-defined]
    package.get_ipython = _nothing  # type: ignore[attr-defined]
    sys.modules.update({"IPython": package, "IPython.display": module})


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """Do nothing: there is no cell to clear and no shell to return."""

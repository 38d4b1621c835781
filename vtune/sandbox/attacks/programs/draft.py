"""A program while it is being written: its lines, and where the input lies in the picture that they make."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from vtune.schema.box import Box

Map = npt.NDArray[np.float64]
"""3 x 3 matrix that maps pixels of the input (x, y, 1) to pixels of a picture."""

HEADER = (
    "from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageFilter, ImageOps\n"
    "import base64, cv2, io\n"
    "import numpy as np"
)


@dataclass(frozen=True, slots=True)
class Place:
    """A part of the input in a picture."""

    map: Map
    box: Box
    """The part, xyxy in pixels of the input."""


@dataclass(slots=True)
class Draft:
    """The variable `c` and what is known about it.

    Operations append lines that compute a new `c`, and update `width`, `height`, `kind` and `places`.
    """

    lines: list[str]
    width: int
    height: int
    places: tuple[Place, ...]
    kind: str = "pil"
    """`pil` or `array` (RGB, uint8)."""
    grey: bool = False
    """Only one channel."""
    saved: tuple[str, ...] = ()
    honest: bool = True
    """Nothing has been done that removes what it shows."""
    first: bool = field(default=True)
    """The first picture returned is this one, not another one from the same file."""

    def add(self, *lines: str) -> None:
        """Append lines unchanged."""
        self.lines.extend(lines)

    def pil(self, *, colour: bool = False) -> None:
        """Make `c` a PIL picture, with three channels if `colour`."""
        if self.kind == "array":
            self.add("c = Image.fromarray(c)")
            self.kind = "pil"
        if colour and self.grey:
            self.add("c = c.convert('RGB')")
            self.grey = False

    def array(self, *, colour: bool = False, grey: bool = False) -> None:
        """Make `c` an array, with three channels if `colour`, one if `grey`."""
        if self.kind == "pil":
            self.add("c = np.array(c)")
            self.kind = "array"
        if colour and self.grey:
            self.add("c = cv2.cvtColor(c, cv2.COLOR_GRAY2RGB)")
            self.grey = False
        if grey and not self.grey:
            self.add("c = cv2.cvtColor(c, cv2.COLOR_RGB2GRAY)")
            self.grey = True

    def move(self, matrix: Map, width: int, height: int) -> None:
        """`c` is now a picture of this size, and `matrix` maps the old picture's pixels to its pixels."""
        self.places = tuple(Place(matrix @ place.map, place.box) for place in self.places)
        self.width, self.height = width, height


Operation = Callable[[Draft, tuple[float, ...]], None]
"""Appends a change of `c` to a draft; its parameters, in [0, 1], control the strength."""


def scaled(x: float, y: float) -> Map:
    """The map of a resize."""
    return np.diag([x, y, 1.0])


def shifted(x: float, y: float) -> Map:
    """The map of a shift."""
    return np.array([[1.0, 0, x], [0, 1.0, y], [0, 0, 1.0]])


def within(number: float, low: float, high: float) -> float:
    """Scale a parameter to a range."""
    return low + (high - low) * number


def integer(number: float, low: int, high: int) -> int:
    """Turn a parameter into an integer from `low` to `high`."""
    return min(high, low + int(number * (high - low + 1)))


def either(number: float, *options: str) -> str:
    """Use a parameter to choose one of several texts."""
    return options[integer(number, 0, len(options) - 1)]

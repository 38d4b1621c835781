"""A custom tool: rotate a picture by a quarter, a half or three quarters of a circle."""

import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from vtune.sandbox import ShownCrop
from vtune.tools import TOOLS
from vtune.tools.observation import IMAGE_MARK, Observation
from vtune.tools.tool import Mistake, Scene, Schema, ToolPart, check_names, function, shown

NAME = "rotate_tool"
ANGLES = (90, 180, 270)


class Rotate:
    """Rotates the first picture of the question."""

    @property
    def schema(self) -> Schema:
        """One argument: by how much."""
        angle = {"type": "integer", "enum": list(ANGLES), "description": "Degrees, to the left."}
        return function(NAME, "Turn the picture.", {"angle": angle}, ["angle"])

    def key(self, arguments: Mapping[str, Any], scene: Scene) -> str:
        """The angle: the result depends on nothing else."""
        check_names(arguments, self.schema)
        angle = arguments["angle"]
        if angle not in ANGLES:
            raise Mistake(f"angle is one of {', '.join(map(str, ANGLES))}")
        return str(int(angle))

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Observation:
        """The rotated picture, and where each of its pixels came from."""
        angle, out = int(self.key(arguments, scene)), io.BytesIO()
        picture = Image.open(io.BytesIO(scene.images[0])).convert("RGB")  # a JPEG may be CMYK
        picture.rotate(angle, expand=True).save(out, "PNG")
        whole = (0.0, 0.0, float(picture.width), float(picture.height))
        crop = ShownCrop(bbox=whole, image=0, shown=0, matrix=back(angle, *picture.size))
        return shown(f"Turned by {angle} degrees:\n{IMAGE_MARK}", [out.getvalue()], [crop])


def back(angle: int, width: int, height: int) -> tuple[float, ...]:
    """Map (x, y) of the rotated picture to (X, Y) of the original of this size, between pixel edges.

    Returns:
        (a, b, c, d, e, f): X = a x + b y + c, Y = d x + e y + f.
    """
    if angle == 90:
        return (0, -1, width, 1, 0, 0)
    if angle == 180:
        return (-1, 0, width, 0, -1, height)
    return (0, 1, 0, -1, 0, height)


@asynccontextmanager
async def opened(section: object, record: Path) -> AsyncIterator[Rotate]:
    """Nothing has to be opened."""
    yield Rotate()


TOOLS.add(NAME, ToolPart("Turn a picture.", opened=opened, example={"angle": 90}))

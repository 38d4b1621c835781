"""image_zoom_in_tool: zooms in on part of a picture. Our own code crops; none of the model's runs."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from vtune.errors import DataError, ServiceError
from vtune.sandbox import ShownCrop
from vtune.schema.box import Box
from vtune.schema.decode import png_of
from vtune.schema.pixels import Refused, check_size, decode_picture, size_of
from vtune.sections import Strict
from vtune.tools import TOOLS
from vtune.tools.observation import IMAGE_MARK, Observation
from vtune.tools.similarity import LOOKS
from vtune.tools.tool import Mistake, Scene, Schema, ToolPart, View, check_names, function, shown

NAME = "image_zoom_in_tool"

Space = Literal["relative_1000", "relative_1", "shown_pixels"]
"""Coordinates that the policy writes: thousandths of the picture (Qwen3-VL, SenseNova-MARS), fractions of it
(Mini-o3), or pixels of the picture at the size at which it sees it (Qwen2.5-VL, DeepEyes)."""

_SPACES: Mapping[Space, str] = {
    "relative_1000": "from 0 to 1000, relative to the width and height of the picture",
    "relative_1": "from 0 to 1, relative to the width and height of the picture",
    "shown_pixels": "in pixels of the picture",
}


class ZoomRecipe(Strict):
    """How regions are written, and which are too small."""

    space: Space
    min_side: int = Field(gt=0)
    """Shortest side of a region in pixels of the stored picture (28 in SenseNova-MARS's code); a smaller one
    is the model's error."""


@dataclass(frozen=True, slots=True)
class _Region:
    view: View
    box: Box
    """In whole pixels of `view.data`."""


class Zoom:
    """Cuts regions out of pictures of the conversation.

    If a picture is itself a region, its regions are cut out of the stored picture: nothing is enlarged
    twice, and the box of a call always refers to the stored picture.
    """

    def __init__(self, recipe: ZoomRecipe) -> None:
        self._recipe = recipe

    @property
    def schema(self) -> Schema:
        """Name and arguments are those of SenseNova-MARS."""
        how = _SPACES[self._recipe.space]
        return function(
            NAME,
            "Zoom in on a region of a picture: the region is cut out and shown to you in more detail.",
            {
                "bbox_2d": {
                    "type": "array",
                    "items": {"type": "number"},
                    "minItems": 4,
                    "maxItems": 4,
                    "description": f"The region as [x1, y1, x2, y2], {how}; the left upper corner first.",
                },
                "label": {"type": "string", "description": "What is in the region."},
                "img_idx": {
                    "type": "integer",
                    "description": "Number of the picture in the conversation, from 0; 0 if left out.",
                },
            },
            ["bbox_2d"],
        )

    def key(self, arguments: Mapping[str, Any], scene: Scene) -> str:
        """The region in the stored picture."""
        region = self._region(arguments, scene)
        return json.dumps([hashlib.sha256(region.view.data).hexdigest(), region.view.image, region.box])

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Observation:
        """The region, as PNG, at its original resolution."""
        region = self._region(arguments, scene)
        crop = await asyncio.to_thread(_cut, region.view.data, region.box)
        return shown(
            f"Here is the zoomed image:\n{IMAGE_MARK}",
            [crop],
            [ShownCrop(bbox=region.box, image=region.view.image, shown=0)],
        )

    def _region(self, arguments: Mapping[str, Any], scene: Scene) -> _Region:
        check_names(arguments, self.schema)
        if not isinstance(arguments.get("label", ""), str):
            raise Mistake("label is a text")
        number = arguments.get("img_idx", 0)
        if type(number) is not int or not 0 <= number < len(scene.views):
            raise Mistake(f"img_idx is the number of a picture, from 0 to {len(scene.views) - 1}")
        view = scene.views[number]
        x0, y0, x1, y1 = self._shares(arguments["bbox_2d"], view)
        left, top, right, bottom = view.region or (0.0, 0.0, *map(float, _size(view.data)))
        width, height = right - left, bottom - top
        box = (
            float(round(left + x0 * width)),
            float(round(top + y0 * height)),
            float(round(left + x1 * width)),
            float(round(top + y1 * height)),
        )
        least = self._recipe.min_side
        if min(box[2] - box[0], box[3] - box[1]) < least:
            raise Mistake(f"the region is too small: it needs {least} pixels a side at least")
        try:
            check_size(int(box[2] - box[0]), int(box[3] - box[1]))
        except Refused as refused:
            raise Mistake(f"the region cannot be shown: {refused}") from None
        return _Region(view, box)

    def _shares(self, value: Any, view: View) -> tuple[float, float, float, float]:
        """The box as fractions of the picture's sides, in [0, 1]."""
        if not isinstance(value, list) or len(value) != 4 or any(type(n) not in (int, float) for n in value):
            raise Mistake("bbox_2d is a list of four numbers")
        width, height = {
            "relative_1000": (1000, 1000),
            "relative_1": (1, 1),
            "shown_pixels": view.seen,
        }[self._recipe.space]
        x0, y0, x1, y1 = value
        inside = 0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height
        if not inside or not all(map(isfinite, value)):
            raise Mistake(
                f"bbox_2d {value} is no region of the picture: write [x1, y1, x2, y2] with "
                f"0 <= x1 < x2 <= {width} and 0 <= y1 < y2 <= {height}"
            )
        return x0 / width, y0 / height, x1 / width, y1 / height


def _size(data: bytes) -> tuple[int, int]:
    try:
        return size_of(data)
    except DataError as error:
        raise ServiceError(error.what) from None


def _cut(data: bytes, box: Box) -> bytes:
    try:
        picture = decode_picture(data)
    except DataError as error:
        raise ServiceError(error.what) from None
    x0, y0, x1, y1 = map(int, box)
    return png_of(picture.crop((x0, y0, x1, y1)))


def _look(image: int, region: Box, size: tuple[int, int]) -> dict[str, Any]:
    """The arguments in thousandths of the picture."""
    box = [round(1000 * value / size[axis % 2]) for axis, value in enumerate(region)]
    return {"bbox_2d": box} | ({"img_idx": image} if image else {})


@asynccontextmanager
async def _opened(section: ZoomRecipe, record: Path) -> AsyncIterator[Zoom]:
    yield Zoom(section)


TOOLS.add(
    NAME,
    ToolPart(
        "Cut a region out of a picture and show it closer.",
        opened=_opened,
        section="zoom",
        recipe=ZoomRecipe,
        example={"bbox_2d": [250, 250, 750, 750]},
        settings={"space": "relative_1000", "min_side": 8},
        look=_look,
        credit=LOOKS,
    ),
)

import asyncio
import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.rollout.build import SAMPLE
from vtune.tools.observation import Observation
from vtune.tools.tool import Mistake, Scene, View
from vtune.tools.zoom import Space, Zoom, ZoomRecipe

WIDTH, HEIGHT = 200, 100
PIXELS = np.stack(np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT)), -1).astype(np.uint8)
PIXELS = np.concatenate([PIXELS, np.zeros((HEIGHT, WIDTH, 1), np.uint8)], -1)
"""Every pixel encodes its position."""


def encoded() -> bytes:
    out = io.BytesIO()
    Image.fromarray(PIXELS).save(out, "PNG")
    return out.getvalue()


PHOTO = encoded()
WHOLE = View(PHOTO, 0, None, (100, 50))
SCENE = Scene(SAMPLE, (PHOTO,), (WHOLE,))


def zoomed(
    arguments: Mapping[str, Any], scene: Scene = SCENE, *, space: Space = "relative_1000", side: int = 4
) -> Observation:
    return asyncio.run(Zoom(ZoomRecipe(space=space, min_side=side)).run(arguments, scene))


def corner(seen: Observation) -> tuple[int, int]:
    """The position of the crop's first pixel in the stored picture."""
    x, y, _ = Image.open(io.BytesIO(seen.images[0])).getpixel((0, 0))  # type: ignore[misc]
    return x, y


@pytest.mark.parametrize(
    ("space", "box"),
    [
        ("relative_1000", [250, 100, 500, 600]),
        ("relative_1", [0.25, 0.1, 0.5, 0.6]),
        ("shown_pixels", [25, 5, 50, 30]),
    ],
)
def test_a_region_selects_the_same_pixels_in_every_space(space: Space, box: list[float]) -> None:
    seen = zoomed({"bbox_2d": box, "label": "x", "img_idx": 0}, space=space)
    (crop,) = seen.crops
    assert (crop.bbox, crop.image, crop.shown) == ((50.0, 10.0, 100.0, 60.0), 0, 0)
    assert corner(seen) == (50, 10)
    assert Image.open(io.BytesIO(seen.images[0])).size == (50, 50)
    assert seen.text.count("<image>") == 1


def test_a_region_of_a_region_is_cropped_from_the_stored_picture() -> None:
    part = View(PHOTO, 0, (50.0, 10.0, 100.0, 60.0), (28, 28))
    seen = zoomed({"bbox_2d": [500, 0, 1000, 500], "img_idx": 1}, replace(SCENE, views=(WHOLE, part)))
    assert seen.crops[0].bbox == (75.0, 10.0, 100.0, 35.0)
    assert seen.crops[0].image == 0
    assert corner(seen) == (75, 10)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no box": ({}, "missing"),
    "three numbers": ({"bbox_2d": [1, 2, 3]}, "four numbers"),
    "a text": ({"bbox_2d": "1,2,3,4"}, "four numbers"),
    "truth values": ({"bbox_2d": [False, False, True, True]}, "four numbers"),
    "turned": ({"bbox_2d": [500, 0, 100, 1000]}, "no region"),
    "outside": ({"bbox_2d": [0, 0, 1001, 1000]}, "no region"),
    "too small": ({"bbox_2d": [0, 0, 10, 1000]}, "too small"),
    "no such picture": ({"bbox_2d": [0, 0, 9, 9], "img_idx": 1}, "number of a picture"),
    "a picture's name": ({"bbox_2d": [0, 0, 9, 9], "img_idx": "0"}, "number of a picture"),
    "a number as label": ({"bbox_2d": [0, 0, 9, 9], "label": 3}, "label"),
    "an unknown argument": ({"bbox_2d": [0, 0, 9, 9], "zoom": 2}, "no argument"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_the_models_mistake(name: str) -> None:
    arguments, why = WRONG[name]
    with pytest.raises(Mistake, match=why):
        zoomed(arguments)


@given(st.lists(st.floats(0, 1000), min_size=4, max_size=4))
def test_a_crop_has_the_size_of_its_box_and_is_inside_the_picture(box: list[float]) -> None:
    try:
        seen = zoomed({"bbox_2d": box})
    except Mistake:
        return
    x0, y0, x1, y1 = seen.crops[0].bbox
    assert 0 <= x0 < x1 <= WIDTH
    assert 0 <= y0 < y1 <= HEIGHT
    assert Image.open(io.BytesIO(seen.images[0])).size == (x1 - x0, y1 - y0)


def test_calls_for_the_same_pixels_have_the_same_key() -> None:
    tool = Zoom(ZoomRecipe(space="relative_1000", min_side=4))
    first = tool.key({"bbox_2d": [250, 100, 500, 600], "label": "a"}, SCENE)
    assert first == tool.key({"bbox_2d": [250.4, 100, 500, 600]}, SCENE)
    assert first != tool.key({"bbox_2d": [260, 100, 500, 600]}, SCENE)


def test_a_hairline_is_the_models_mistake_and_not_ours() -> None:
    out = io.BytesIO()
    Image.new("L", (20_000, 100)).save(out, "PNG")
    wide = out.getvalue()
    scene = Scene(SAMPLE, (wide,), (View(wide, 0, None, (1000, 5)),))
    with pytest.raises(Mistake, match="cannot be shown: it is 20000 x 5: one side is more than 2000 times"):
        zoomed({"bbox_2d": [0, 100, 1000, 150]}, scene, side=1)

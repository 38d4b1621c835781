"""A region of a tool's picture is traced back to the input picture, whatever tool cropped it."""

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.rollout.build import ANSWER, job
from tests.rollout.test_tool_calls import ASKING, call, converse, turn
from vtune.environments.origins import Origins
from vtune.looks.geometry import corners, map_of
from vtune.models.policy import Policy
from vtune.sandbox import ShownCrop
from vtune.tools import zoom
from vtune.tools.observation import IMAGE_MARK, Observation
from vtune.tools.tool import Scene, function, shown

side = st.integers(1, 60)


def png(width: int, height: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height)).save(out, "PNG")
    return out.getvalue()


@given(x=side, y=side, width=side, height=side, times=st.integers(1, 4))
def test_a_crop_of_an_enlarged_crop_is_traced_to_the_input(
    x: int, y: int, width: int, height: int, times: int
) -> None:
    origins = Origins()
    tile = ShownCrop(bbox=(x, y, x + width, y + height), image=0, shown=0)
    origins.take(1, [tile], [png(width * times, height * times)])
    part = ShownCrop(bbox=(0.0, 0.0, width * times / 2, height * times / 2), image=1, shown=0)
    (found,) = origins.placed([part], [png(7, 5)])
    assert (found.image, found.shown, found.matrix) == (0, 0, None)
    assert found.bbox == pytest.approx((x, y, x + width / 2, y + height / 2))
    # And once more, from the picture of that part.
    origins.take(2, [found], [png(7, 5)])
    (again,) = origins.placed([ShownCrop(bbox=(0.0, 0.0, 7.0, 5.0), image=2, shown=None)], [])
    assert (again.image, again.bbox) == (0, pytest.approx(found.bbox))


@pytest.mark.parametrize(
    ("angle", "back"),
    [(90, (0, -1, 30, 1, 0, 0)), (180, (-1, 0, 30, 0, -1, 20)), (270, (0, 1, 0, -1, 0, 20))],
)
def test_a_crop_of_a_rotated_picture_composes_both_maps(angle: int, back: tuple[float, ...]) -> None:
    """The map from a picture rotated to the left, to the original of 30 x 20 pixels."""
    picture = Image.fromarray(np.arange(20 * 30 * 3, dtype=np.uint8).reshape(20, 30, 3))
    turned = picture.rotate(angle, expand=True)
    out = io.BytesIO()
    turned.save(out, "PNG")
    origins = Origins()
    whole = ShownCrop(bbox=(0.0, 0.0, 30.0, 20.0), image=0, shown=0, matrix=back)
    origins.take(1, [whole], [out.getvalue()])
    (found,) = origins.placed([ShownCrop(bbox=(2.0, 3.0, 9.0, 7.0), image=1, shown=0)], [png(7, 4)])
    assert found.image == 0
    assert found.matrix is not None
    x0, y0, x1, y1 = map(int, found.bbox)
    there = picture.crop((x0, y0, x1, y1)).rotate(angle, expand=True)
    assert there.tobytes() == turned.crop((2, 3, 9, 7)).tobytes()
    way = map_of(found.matrix)
    assert way is not None
    ends = corners((0.0, 0.0, 7.0, 4.0), way)
    assert ends is not None
    assert (*ends.min(axis=1), *ends.max(axis=1)) == pytest.approx(found.bbox)


def test_a_picture_of_several_regions_has_no_origin_and_others_are_unaffected() -> None:
    origins = Origins()
    both = [ShownCrop(bbox=(n, 0.0, n + 5.0, 5.0), image=0, shown=0) for n in (0.0, 5.0)]
    origins.take(1, both, [png(10, 5)])
    part = ShownCrop(bbox=(0.0, 0.0, 2.0, 2.0), image=1, shown=0)
    assert origins.placed([part], [png(2, 2)]) == (part,)
    own = ShownCrop(bbox=(0.0, 0.0, 2.0, 2.0), image=0, shown=0)
    assert origins.placed([own], [png(2, 2)]) == (own,)


class Tiles:
    """Returns the right half of the first picture, enlarged twofold."""

    schema = function("tiles", "The right half.", {}, [])

    def key(self, arguments: Any, scene: Scene) -> str:
        return ""

    async def run(self, arguments: Any, scene: Scene) -> Observation:
        picture = Image.open(io.BytesIO(scene.images[0]))
        width, height = picture.size
        half = picture.crop((width // 2, 0, width, height)).resize((width // 2 * 2, height * 2))
        out = io.BytesIO()
        half.save(out, "PNG")
        crop = ShownCrop(bbox=(width // 2, 0, width, height), image=0, shown=0)
        return shown(IMAGE_MARK, [out.getvalue()], [crop])


def test_a_zoom_into_a_custom_tools_picture_is_recorded_in_input_pixels(policy: Policy) -> None:
    asked = replace(ASKING, tools=(*ASKING.tools, "tiles"))
    into = call(zoom.NAME, bbox_2d=[0, 0, 500, 500], img_idx=1)
    words = (turn(call("tiles")), turn(into), ANSWER)
    (found,) = converse(policy, *words, jobs=[job(asked)], own={"tiles": Tiles()})
    assert [one.status for one in found.calls] == ["ok", "ok"]
    width, height = Image.open(io.BytesIO(found.images[0].data or b"")).size
    (crop,) = found.calls[1].crops
    assert (crop.image, crop.shown, crop.matrix) == (0, 2, None)
    assert crop.bbox == pytest.approx((width / 2, 0, width * 0.75, height / 2))

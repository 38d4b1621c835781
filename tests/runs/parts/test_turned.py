"""A custom tool that rotates a picture: an honest rotation is a look, a false claim is faked."""

import asyncio
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import ROOT
from tests.reward.build import encode, looks, noise, recipe, sample
from vtune.reward.score import Scorer
from vtune.runs.agent.tools import ToolsRecipe, tools_of
from vtune.schema.message import Picture
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Call, Crop, Trajectory
from vtune.tools.calls import Asked
from vtune.tools.observation import Observation
from vtune.tools.result_cache import ResultCache
from vtune.tools.tool import Scene
from vtune.uses import use

SIZE = (140, 100)
"""Not square, as a rotated square could hide swapped axes."""
BLOTCHES = np.random.default_rng(3).integers(0, 256, (25, 35, 3), dtype=np.uint8)
PICTURE = Picture(encode(np.asarray(Image.fromarray(BLOTCHES).resize(SIZE))), seen=SIZE)
LARGE, BESIDE = (10.0, 10.0, 90.0, 80.0), (100.0, 5.0, 135.0, 40.0)


@pytest.fixture(autouse=True)
def brought(forgetting: None) -> None:
    use([ROOT / "tests/own/rotate.py"])


def turned(angle: int, folder: Path) -> Observation:
    async def called() -> Observation:
        section = ToolsRecipe.model_validate({"rotate_tool": {}})
        async with tools_of(section, folder / "search.jsonl") as tools:
            scene = Scene(asked(LARGE), (PICTURE.data or b"",), ())
            return await tools.run(Asked("rotate_tool", {"angle": angle}, "", 0), scene, 0, ResultCache())

    return asyncio.run(called())


def asked(*boxes: tuple[float, float, float, float]) -> Sample:
    evidence = tuple(Evidence("cup", 0, box) for box in boxes)
    return replace(sample(), images=(PICTURE,), evidence=evidence, tools=("rotate_tool",))


def scored(angle: int, seen: Observation, *crops: Crop) -> Trajectory:
    """A scored trajectory with one rotation, with the observation's crops or others instead."""
    width, height = Image.open(io.BytesIO(seen.images[0])).size
    made = crops or tuple(Crop(one.image, one.bbox, 1, one.matrix) for one in seen.crops)
    call = Call(
        tool="rotate_tool", arguments=json.dumps({"angle": angle}), status="ok", images=(1,), crops=made
    )
    picture = Picture(seen.images[0], origin="call:0", seen=(width, height))
    done = replace(looks(encode_nothing()), images=(PICTURE, picture), calls=(call,))

    async def score() -> list[Trajectory]:
        async with Scorer(recipe()) as scorer:
            return await scorer.score([asked(LARGE)], [done])

    (found,) = asyncio.run(score())
    return found


def encode_nothing() -> Picture:
    return Picture(encode(noise(30, 30, 9)))


@pytest.mark.parametrize("angle", [90, 180, 270])
def test_the_map_leads_back_to_the_pixel(angle: int, tmp_path: Path) -> None:
    seen = turned(angle, tmp_path)
    (crop,) = seen.crops
    assert crop.matrix is not None
    a, b, c, d, e, f = crop.matrix
    before = np.asarray(Image.open(io.BytesIO(PICTURE.data or b"")))
    after = np.asarray(Image.open(io.BytesIO(seen.images[0])))
    for x, y in ((0, 0), (70, 20), (99, 60), (5, 90)):
        X, Y = a * (x + 0.5) + b * (y + 0.5) + c, d * (x + 0.5) + e * (y + 0.5) + f  # noqa: N806 - as its docs
        assert (after[y, x] == before[int(Y), int(X)]).all()


@pytest.mark.parametrize("angle", [90, 180, 270])
def test_an_honest_rotation_is_rewarded_and_not_flagged(angle: int, tmp_path: Path) -> None:
    found = scored(angle, turned(angle, tmp_path))
    assert found.calls[0].flags == ()
    assert found.calls[0].crops[0].look == "verified"
    assert found.tool_scores == (1.0,)


@pytest.mark.parametrize("angle", [90, 180, 270])
def test_a_rotation_with_a_false_or_missing_angle_is_faked(angle: int, tmp_path: Path) -> None:
    seen = turned(angle, tmp_path)
    other = turned({90: 270, 180: 90, 270: 90}[angle], tmp_path).crops[0]
    (honest,) = seen.crops
    for matrix in (None, other.matrix):
        found = scored(angle, seen, Crop(0, honest.bbox, 1, matrix))
        assert found.calls[0].flags == ("faked",)
        assert found.tool_scores == (-0.5,)

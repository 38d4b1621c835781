"""The world of trails as searched in a run: every question's answer exists and can be found."""

import asyncio
import io
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from PIL import Image

from tests.runs.commands import vtune
from vtune.config import find, load_recipe
from vtune.data.trail_world import CHEQUER, CORNERS, PLATE, PLATE_SIDE, SEAL_SIDE, SEALS, SIDE, plate_box
from vtune.data.trails import TOOLS, query, region
from vtune.errors import RecipeError
from vtune.runs.agent.tools import check_indexes, check_tools, tools_of
from vtune.runs.data.trails import make_trails
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.parquet import read_samples, read_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.tools.calls import read_calls, tool_response
from vtune.tools.observation import Observation
from vtune.tools.tool import Scene, View
from vtune.tools.toolbox import Results, Toolbox

IMAGE_SEARCH, ZOOM, TEXT_SEARCH = TOOLS
SEEN = 112
"""Pixels per side of a picture as the policy sees it."""
SIZES: dict[str, int] = {"train": 6, "heldout": 12, "traces": 12, "towns": 24, "heldout_towns": 8}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trails") / "data"
    make_trails(folder, **SIZES, seed=0, tiny=None)
    return folder


def indexes(folder: Path) -> list[str]:
    return [
        f"tools.text_search.index={folder / 'articles-index'}",
        f"tools.image_search.index={folder / 'banners-index'}",
    ]


Ask = Callable[[str, dict[str, Any]], Awaitable[Observation]]
T = TypeVar("T")


def with_tools(
    folder: Path, policy: Callable[[Sample, Ask], Awaitable[T]], asked: Sequence[Sample]
) -> list[T]:
    """A policy's results on questions with the tools of the recipe `credit-tiny`."""
    recipe = load_recipe(find("credit-tiny", "recipes.rl"), RLRecipe, indexes(folder))

    async def one(tools: Toolbox, sample: Sample, group: int, results: Results) -> T:
        data = sample.images[0].data or b""
        scene = Scene(sample, (data,), (View(data, 0, None, (SEEN, SEEN)),))

        async def ask(name: str, arguments: dict[str, Any]) -> Observation:
            written = json.dumps({"name": name, "arguments": arguments})
            (call,) = read_calls(f"<tool_call>{written}</tool_call>", TOOLS)
            return await tools.run(call, scene, group, results)

        return await policy(sample, ask)

    async def all_of_them() -> list[T]:
        results = Results()
        async with tools_of(recipe.tools, folder / "search.jsonl") as tools:
            return [await one(tools, sample, number, results) for number, sample in enumerate(asked)]

    return asyncio.run(all_of_them())


async def follow(sample: Sample, ask: Ask) -> str:
    """Find the plate in the reduced picture, read its seal in a zoom, and follow the roads."""
    corner = min(CORNERS, key=lambda cell: distance_from_plate(sample, cell))
    looked = await ask(ZOOM, {"bbox_2d": region(corner)})
    town = (await ask(IMAGE_SEARCH, {})).text.removeprefix("1. ")
    return await walk(sample, ask, town, seal_of(looked.images[0]))


async def walk(sample: Sample, ask: Ask, town: str, colour: str) -> str:
    for _ in range(int(re.findall(r"\d+", sample.question)[0])):
        told = await ask(TEXT_SEARCH, {"query": query(colour, town)})
        town = re.findall(r"leads to (.+)\.$", told.text)[0]
    return town


def distance_from_plate(sample: Sample, cell: int) -> float:
    """Distance of a cell's centre from a plate's grey, in the picture as the policy sees it."""
    seen = Image.open(io.BytesIO(sample.images[0].data or b"")).resize((SEEN, SEEN))
    x0, y0, x1, y1 = (round(edge * SEEN / SIDE) for edge in plate_box(cell))
    return float(np.abs(np.asarray(seen, np.int64)[y0 + 2 : y1 - 2, x0 + 2 : x1 - 2] - PLATE).max())


def seal_of(cut: bytes) -> str:
    """The colour of the first chequer."""
    inset = (PLATE_SIDE - SEAL_SIDE) // 2
    first = np.asarray(Image.open(io.BytesIO(cut)), np.int64)[
        inset : inset + CHEQUER, inset : inset + CHEQUER
    ]
    above = first.mean(axis=(0, 1)) - PLATE
    return min(SEALS, key=lambda name: float(np.abs(above - np.array(SEALS[name])).sum()))


def test_every_question_is_answered_by_following_its_trail(made: Path) -> None:
    asked = [sample for name in ("train", "heldout") for sample in read_samples(made / f"{name}.parquet")]
    assert len(asked) == 18
    assert with_tools(made, follow, asked) == [sample.ground_truth for sample in asked]


def test_guessing_the_colour_mostly_leads_elsewhere(made: Path) -> None:
    async def ends(sample: Sample, ask: Ask) -> set[str]:
        town = (await ask(IMAGE_SEARCH, {})).text.removeprefix("1. ")
        return {await walk(sample, ask, town, colour) for colour in SEALS}

    asked = list(read_samples(made / "heldout.parquet"))
    found = with_tools(made, ends, asked)
    assert all(sample.ground_truth in reached for sample, reached in zip(asked, found, strict=True))
    assert np.mean([len(reached) for reached in found]) > 3


def test_traces_match_the_tools_responses(made: Path) -> None:
    (sample, *_) = read_samples(made / "train.parquet")
    found = list(read_trajectories(made / "traces.parquet"))
    assert len(found) == SIZES["traces"]
    assert {call.tool for trace in found for call in trace.calls} == set(TOOLS)
    for trace in found:

        async def replay(sample: Sample, ask: Ask, trace: Trajectory = trace) -> list[Observation]:
            return [await ask(call.tool, json.loads(call.arguments)) for call in trace.calls]

        (said,) = with_tools(made, replay, [replace(sample, images=trace.images[:1])])
        told = [message.content for message in trace.messages[1:] if message.role == "user"]
        assert [tool_response(one.text) for one in said] == told
        shown = [image for one in said for image in one.images]
        assert shown == [picture.data for picture in trace.images[1:]]
        crops = [[(crop.image, crop.bbox) for crop in one.crops] for one in said]
        assert crops == [[(crop.image, crop.bbox) for crop in call.crops] for call in trace.calls]


def test_the_recipe_and_the_suite_use_the_same_tool_settings(made: Path) -> None:
    recipe = load_recipe(find("credit-tiny", "recipes.rl"), RLRecipe, indexes(made))
    suite = load_recipe(find("trails", "eval_suites"), EvalSuite, indexes(made))
    assert recipe.tools == suite.tools
    assert recipe.images == suite.images
    assert recipe.rollout.model_dump().items() >= suite.rollout.model_dump().items()
    check_indexes(recipe.tools)
    check_tools(read_samples(made / "train.parquet"), recipe.tools, recipe.rollout.prompt)


def test_credit_and_algorithm_are_switched_as_the_recipe_says() -> None:
    path = find("credit-tiny", "recipes.rl")
    recipe = load_recipe(path, RLRecipe)
    assert recipe.credit is not None
    assert set(recipe.credit.tools) == {"image_search", "zoom", "text_search"}
    assert load_recipe(path, RLRecipe, ["credit=null"]).credit is None
    stated = re.findall(r"--set '(loss=.+)'", path.read_text(encoding="utf-8"))
    assert [load_recipe(path, RLRecipe, [one]).loss.algorithm for one in stated] == ["gspo", "sapo"]


def test_the_folder_is_made_once(made: Path, tmp_path: Path) -> None:
    assert vtune("data", "validate", *(made / f"{name}.parquet" for name in ("train", "heldout"))).code == 0
    again = tmp_path / "again"
    told = make_trails(again, **SIZES, seed=0, tiny=None)
    assert told["corpus"] == {"path": str(again / "corpus.jsonl"), "rows": 32 * 6}
    for name in ("corpus.jsonl", "banners/metadata.jsonl", "train.parquet", "traces.parquet"):
        assert (again / name).read_bytes() == (made / name).read_bytes()
    with pytest.raises(RecipeError, match="already exists"):
        make_trails(again, **SIZES, seed=0, tiny=None)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RecipeError, match="holds a model"):
        make_trails(tmp_path / "b", **SIZES, seed=0, tiny=tmp_path)

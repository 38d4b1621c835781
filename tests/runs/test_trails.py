"""The world of trails as a run searches it: every question has its answer, and it is there to be found."""

import asyncio
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.runs.commands import vtune
from vtune.config import find, load_recipe
from vtune.data.trail_world import CHEQUER, CORNERS, PLATE, PLATE_SIDE, SEAL_SIDE, SEALS, SIDE, plate_box
from vtune.data.trails import TOOLS, query, region
from vtune.errors import RecipeError
from vtune.runs.eval import EvalSuite
from vtune.runs.rl import RLRecipe
from vtune.runs.tools import check_indexes, check_tools, tools_of
from vtune.runs.trails import make_trails
from vtune.schema.parquet import read_samples, read_trajectories
from vtune.schema.sample import Sample
from vtune.tools.calls import read_calls, tool_response
from vtune.tools.observation import Observation
from vtune.tools.tool import Scene, View
from vtune.tools.toolbox import Results

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


Ask = Callable[[str, dict[str, Any]], Observation]


def with_tools(folder: Path, policy: Callable[[Sample, Ask], str], samples: Sequence[Sample]) -> list[str]:
    """The answers of a policy that asks the tools of the recipe `credit-tiny`."""
    recipe = load_recipe(find("credit-tiny", "recipes.rl"), RLRecipe, indexes(folder))

    async def answered() -> list[str]:
        async with tools_of(recipe.tools, folder / "search.jsonl") as tools:
            found = []
            for number, sample in enumerate(samples):
                data = sample.images[0].data or b""
                scene = Scene(sample, (data,), (View(data, 0, None, (112, 112)),))
                results = Results()

                def ask(
                    name: str,
                    arguments: dict[str, Any],
                    scene: Scene = scene,
                    group: int = number,
                    results: Results = results,
                ) -> Observation:
                    written = json.dumps({"name": name, "arguments": arguments})
                    (asked,) = read_calls(f"<tool_call>{written}</tool_call>", TOOLS)
                    return asyncio.run(tools.run(asked, scene, group, results))

                found.append(await asyncio.to_thread(policy, sample, ask))
            return found

    return asyncio.run(answered())


def follow(sample: Sample, ask: Ask) -> str:
    """Look for the plate in the reduced picture, read its seal in a zoom, and follow the roads."""
    roads = int(re.findall(r"\d+", sample.question)[0])
    seen = Image.open(io.BytesIO(sample.images[0].data or b"")).resize((112, 112))
    middles = [
        [(edge + other) / 2 * 112 / SIDE for edge, other in ((b[0], b[2]), (b[1], b[3]))]
        for b in map(plate_box, CORNERS)
    ]
    greys = [
        np.abs(
            np.asarray(seen, np.int64)[round(y) - 2 : round(y) + 2, round(x) - 2 : round(x) + 2] - PLATE
        ).max()
        for x, y in middles
    ]
    corner = CORNERS[int(np.argmin(greys))]
    looked = ask(TOOLS[1], {"bbox_2d": region(corner)})
    town = ask(TOOLS[0], {}).text.removeprefix("1. ")
    colour = seal_of(looked.images[0])
    for _ in range(roads):
        told = ask(TOOLS[2], {"query": query(colour, town)})
        town = re.findall(r"leads to (.+)\.$", told.text)[0]
    return town


def seal_of(cut: bytes) -> str:
    """The colour of the first chequer."""
    inset = (PLATE_SIDE - SEAL_SIDE) // 2
    first = np.asarray(Image.open(io.BytesIO(cut)), np.int64)[
        inset : inset + CHEQUER, inset : inset + CHEQUER
    ]
    above = first.mean(axis=(0, 1)) - PLATE
    return min(SEALS, key=lambda name: float(np.abs(above - np.array(SEALS[name])).sum()))


def test_every_question_is_answered_by_following_its_trail_with_the_tools(made: Path) -> None:
    asked = [sample for name in ("train", "heldout") for sample in read_samples(made / f"{name}.parquet")]
    assert len(asked) == 18
    assert with_tools(made, follow, asked) == [sample.ground_truth for sample in asked]


def test_a_trail_of_another_colour_ends_elsewhere(made: Path) -> None:
    """Else the zoom would not be needed."""

    def guess(sample: Sample, ask: Ask) -> str:
        town = ask(TOOLS[0], {}).text.removeprefix("1. ")
        ends = set()
        for colour in SEALS:
            there = town
            for _ in range(int(re.findall(r"\d+", sample.question)[0])):
                there = ask(TOOLS[2], {"query": query(colour, there)}).text.split(" leads to ")[1]
                there = there.removesuffix(".")
            ends.add(there)
        return str(len(ends))

    several = [int(count) for count in with_tools(made, guess, list(read_samples(made / "heldout.parquet")))]
    assert min(several) >= 2
    assert np.mean(several) > 3


def test_traces_say_what_the_tools_say(made: Path) -> None:
    found = list(read_trajectories(made / "traces.parquet"))
    (sample, *_) = read_samples(made / "train.parquet")
    told = 0
    for trace in found:

        def replay(sample: Sample, ask: Ask, trace: Any = trace) -> str:
            said = [ask(call.tool, json.loads(call.arguments)) for call in trace.calls]
            assert [tool_response(one.text) for one in said] == [
                message.content for message in trace.messages[1:] if message.role == "user"
            ]
            shown = [image for one in said for image in one.images]
            assert shown == [picture.data for picture in trace.images[1:]]
            return str(len(said))

        from dataclasses import replace

        told += int(with_tools(made, replay, [replace(sample, images=trace.images[:1])])[0])
    assert told > 24


def test_the_recipe_and_the_suite_ask_the_same_tools_in_the_same_way(made: Path) -> None:
    recipe = load_recipe(find("credit-tiny", "recipes.rl"), RLRecipe, indexes(made))
    suite = load_recipe(find("trails", "eval_suites"), EvalSuite, indexes(made))
    assert recipe.tools == suite.tools
    assert recipe.images == suite.images
    assert recipe.rollout.model_dump().items() >= suite.rollout.model_dump().items()
    check_indexes(recipe.tools)
    check_tools(read_samples(made / "train.parquet"), recipe.tools)


@pytest.mark.parametrize(
    "given",
    [
        ["credit=null"],
        ["loss.algorithm=gspo", "loss.importance_cap=null", "loss.clip_low=3e-4", "loss.clip_high=4e-4"],
        ["loss={algorithm: sapo, tau_positive: 1.0, tau_negative: 1.05, kl_weight: 0.0}"],
    ],
)
def test_credit_and_algorithm_are_switched_as_the_recipe_says(given: list[str]) -> None:
    recipe = load_recipe(find("credit-tiny", "recipes.rl"), RLRecipe, given)
    assert (recipe.credit is None) == (given == ["credit=null"])
    assert recipe.loss.algorithm in "".join(given) or recipe.loss.algorithm == "grpo"


def test_the_folder_is_made_once(made: Path, tmp_path: Path) -> None:
    assert vtune("data", "validate", *(made / f"{name}.parquet" for name in ("train", "heldout"))).code == 0
    again = tmp_path / "again"
    told = make_trails(again, **SIZES, seed=0, tiny=None)
    assert told["corpus"] == {"path": str(again / "corpus.jsonl"), "rows": 32 * 6}
    for name in ("corpus.jsonl", "banners/metadata.jsonl", "train.parquet", "traces.parquet"):
        assert (again / name).read_bytes() == (made / name).read_bytes()
    with pytest.raises(RecipeError, match="is there already"):
        make_trails(again, **SIZES, seed=0, tiny=None)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RecipeError, match="holds a model"):
        make_trails(tmp_path / "b", **SIZES, seed=0, tiny=tmp_path)

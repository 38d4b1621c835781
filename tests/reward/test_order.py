"""The ranking of rewards: hand-made replies scored by the shipped recipes, as on the page of the reward."""

import asyncio
import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

import vtune.reward
from tests.reward.build import PIXELS, RIGHT, TARGET, WRONG, encode, looks, sample
from vtune.reward.recipe import RewardRecipe
from vtune.reward.score import Scorer
from vtune.runs.recipes.shipped import find_shipped, shipped_recipes
from vtune.schema.message import Message, Picture
from vtune.schema.reward import Reward
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

ELSEWHERE = (0, 0, 30, 30)
IN_PART = (46, 40, 66, 60)
WHOLE = (0, 0, 100, 100)
LARGER = Picture(encode(np.asarray(Image.fromarray(PIXELS[40:60, 40:60]).resize((80, 80)))), seen=(168, 168))

MADE_UP = Picture(encode(np.zeros((64, 64, 3), np.uint8)), seen=(84, 84))


def in_one(trajectory: Trajectory, *, closed: bool = True) -> Trajectory:
    """The same conversation with all code in one pair of think tags, as template 13.1 asks."""
    turns = [message.content for message in trajectory.messages if message.role == "assistant"]
    joined = [turns[0], *(turn.removeprefix("<think>") for turn in turns[1:])]
    if not closed:
        joined[-1] = joined[-1].replace("</think>", "")
    messages = (Message("user", "?"), *(Message("assistant", turn) for turn in joined))
    return dataclasses.replace(trajectory, messages=messages)


def magnified() -> Trajectory:
    twice = looks(TARGET, TARGET)
    closer = dataclasses.replace(LARGER, origin="call:1")
    return dataclasses.replace(twice, images=(*twice.images[:2], closer))


REPLIES = {
    "a good look, all code in one `<think>`": in_one(looks(TARGET)),
    "a good look, a `<think>` in each turn": looks(TARGET),
    "a good look, then the same one magnified": in_one(magnified()),
    "a miss, then a good look": in_one(looks(ELSEWHERE, TARGET)),
    "a look at a part of the target": in_one(looks(IN_PART)),
    "a good look, but the thoughts are never closed": in_one(looks(TARGET), closed=False),
    "a miss, all code in one `<think>`": in_one(looks(ELSEWHERE)),
    "a miss, a `<think>` in each turn": looks(ELSEWHERE),
    "a good look, then the same pixels again": in_one(looks(TARGET, TARGET)),
    "no look": looks(),
    "code that shows no picture": in_one(looks("ok")),
    "a picture that shows no part of an input": in_one(looks(MADE_UP)),
    "code that met a limit that its prompt does not mention": in_one(looks("limit")),
    "the whole picture": in_one(looks(WHOLE)),
    "code that failed": in_one(looks("error")),
    "a good look, and a wrong answer": in_one(looks(TARGET, reply=WRONG)),
    "a miss, and a wrong answer": in_one(looks(ELSEWHERE, reply=WRONG)),
    "no look, and a wrong answer": looks(reply=WRONG),
    "the whole picture, and a wrong answer": in_one(looks(WHOLE, reply=WRONG)),
}


@cache
def reward_of(name: str) -> RewardRecipe:
    section = yaml.safe_load(find_shipped(f"rl/{name}").path.read_text(encoding="utf-8"))["reward"]
    return RewardRecipe(**section | {"judge": None})  # the samples here have boxes


def rewards(recipe: RewardRecipe, what: Sample, *trajectories: Trajectory) -> list[Reward]:
    async def story() -> list[Trajectory]:
        async with Scorer(recipe) as scorer:
            return await scorer.score([what], trajectories)

    found = [scored.reward for scored in asyncio.run(story())]
    return [reward for reward in found if reward is not None]


def totals(recipe: RewardRecipe, what: Sample, *trajectories: Trajectory) -> list[float]:
    return [reward.total for reward in rewards(recipe, what, *trajectories) if reward.total is not None]


@pytest.mark.parametrize("name", ["codev", "credit-codev"])
def test_the_table_on_the_reward_page_matches_the_recipes(name: str) -> None:
    page = (Path(vtune.reward.__file__).parent / "README.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in page.splitlines()]
    told = {row[0]: row[1:] for row in rows if row[0] in REPLIES}
    paid = rewards(reward_of(name), sample(TARGET), *REPLIES.values())
    expected = {
        reply: [f"{value:g}" for value in (r.accuracy, r.format, r.tool, r.total) if value is not None]
        for reply, r in zip(REPLIES, paid, strict=True)
    }
    assert told == expected


PAYING = [entry.name for entry in shipped_recipes() if entry.kind == "rl" and reward_of(entry.name).tool]


@pytest.mark.parametrize("name", PAYING)
@pytest.mark.parametrize("reply", [RIGHT, WRONG], ids=["right", "wrong"])
@pytest.mark.parametrize("writes", [in_one, lambda one: one], ids=["one pair", "a pair in each turn"])
def test_on_search_questions_a_good_look_beats_a_miss_which_is_no_worse_than_none(
    name: str, reply: str, writes: Callable[[Trajectory], Trajectory]
) -> None:
    replies = [
        writes(looks(*boxes, reply=reply)) for boxes in ((TARGET,), (IN_PART,), (ELSEWHERE,), (), (WHOLE,))
    ]
    good, part, miss, none, flagged = totals(reward_of(name), sample(TARGET), *replies)
    assert good > part > miss >= none > flagged


@pytest.mark.parametrize("name", PAYING)
def test_on_questions_that_need_no_look_looks_earn_nothing_and_misuse_costs(name: str) -> None:
    replies = [in_one(looks(*boxes)) for boxes in ((TARGET,), (), (WHOLE,))]
    look, none, flagged = totals(reward_of(name), sample(ability="math"), *replies)
    assert look == none > flagged


def test_some_shipped_recipes_reward_looks() -> None:
    assert {"codev", "codev-tiny", "credit-codev"} <= set(PAYING)

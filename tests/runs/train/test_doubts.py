"""Warnings about settings that a recipe's author may not have intended."""

import pytest

from vtune.advantage.recipe import PAPER
from vtune.config import find, load_recipe
from vtune.runs.train.rl import doubts, idle_credit
from vtune.runs.train.rl_recipe import RLRecipe


def found(name: str, *settings: str) -> list[str]:
    return doubts(load_recipe(find(name, "recipes.rl"), RLRecipe, settings))


@pytest.mark.parametrize("name", ["codev", "credit-codev", "credit-search-8b", "orsta-7b", "orsta-32b"])
def test_recipes_of_papers_give_no_warning(name: str) -> None:
    assert found(name) == []


def test_an_unreachable_length_penalty_gives_a_warning() -> None:
    (doubt,) = found("orsta-7b", "advantage.overlong={limit: 20480, buffer: 4096, factor: 1.0}")
    assert "begins after 16384 sampled tokens, but no conversation has more than 2048" in doubt
    assert not found("orsta-7b", "advantage.overlong={limit: 2048, buffer: 512, factor: 1.0}")
    assert not found("codev", "advantage.overlong={limit: 20480, buffer: 4096, factor: 1.0}")


def test_a_reward_without_weights_gives_a_warning() -> None:
    nothing = ("reward.accuracy=0", "reward.format=0", "reward.tool=0")
    (doubt,) = found("codev", *nothing)
    assert "no part of the reward has weight" in doubt
    assert not found("codev", *nothing, "reward.consistency={weight: 0.5, by: model}")
    assert not found("orsta-7b", *nothing)  # its samples bring their own weights


def test_credit_for_tools_that_are_not_offered_gives_a_warning() -> None:
    assert idle_credit(PAPER, {"python"}) == [
        "credit.tools.image_search has no effect: no sample offers image_search_tool",
        "credit.tools.text_search has no effect: no sample offers text_search_tool",
    ]
    assert idle_credit(PAPER, set())[1].endswith("no sample offers python or image_zoom_in_tool")
    assert idle_credit(PAPER, {"image_zoom_in_tool", "text_search_tool", "image_search_tool"}) == []
    assert idle_credit(None, set()) == []

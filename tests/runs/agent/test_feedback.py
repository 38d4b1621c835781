import asyncio
from typing import Any

import pytest

from tests.reward.build import LEVELS, TARGET, looks, sample
from vtune.config import find, load_recipe
from vtune.errors import RecipeError
from vtune.reward.evidence import Judges
from vtune.runs.agent.feedback import HELPFUL, UNHELPFUL, feedback_of
from vtune.runs.agent.opening import open_agent
from vtune.runs.evaluate.suite import AGENTS, AgentRecipe
from vtune.schema.sample import Evidence

ASKED = sample(evidence=(Evidence("sign", 0, TARGET),))


def test_feedback_calls_a_look_helpful_if_it_shows_the_target() -> None:
    told = feedback_of(Judges(LEVELS, None))
    both = looks(TARGET, (0, 0, 30, 30))
    assert [asyncio.run(told(ASKED, both, k)) for k in (0, 1)] == [HELPFUL, UNHELPFUL]


def test_there_is_no_feedback_if_no_look_is_needed() -> None:
    told = feedback_of(Judges(LEVELS.model_copy(update={"search_abilities": ()}), None))
    assert asyncio.run(told(sample(ability="math"), looks(TARGET), 0)) == ""


def test_feedback_without_a_judge_is_refused() -> None:
    recipe = load_recipe(find("lens-tiny", AGENTS), AgentRecipe, ["rollout.feedback=true"])
    nothing: Any = None

    async def opened() -> None:
        async with open_agent(recipe, nothing, nothing, nothing, record=nothing, announced=False):
            raise AssertionError("it was opened")

    with pytest.raises(RecipeError, match="looks are not judged here") as refused:
        asyncio.run(opened())
    assert refused.value.where == "rollout.feedback"

import pytest

from vtune.rollout.recipe import Rollout
from vtune.runs.agent.engines import drawing_threads


@pytest.mark.parametrize(
    ("turns", "threads", "drawing"), [(1, 1, 1), (1, 8, 8), (2, 1, 1), (2, 2, 1), (6, 8, 7)]
)
def test_tools_between_turns_have_a_free_core(turns: int, threads: int, drawing: int) -> None:
    recipe = Rollout(
        prompt="plain",
        temperature=1.0,
        max_turns=turns,
        max_new_tokens=8,
        max_tokens=64,
        max_batch=4,
    )
    assert drawing_threads(recipe, threads) == drawing

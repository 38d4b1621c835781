import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.update.build import update
from vtune.update.schedule import learning_rate_at

steps = st.integers(1, 50)
schedules = st.sampled_from(["constant", "cosine"])


def rates(count: int, **changes: object) -> list[float]:
    recipe = update(learning_rate=1.0, **changes)
    return [learning_rate_at(step, recipe, steps=count) for step in range(count)]


def test_warm_up_rises_in_equal_steps_to_the_full_rate() -> None:
    assert rates(6, warmup_steps=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_a_cosine_falls_from_the_full_rate_to_a_tenth() -> None:
    found = rates(101, schedule="cosine", warmup_steps=1)
    assert found[:2] == [1.0, 1.0]
    assert found[51] == pytest.approx(0.55)
    assert found == sorted(found, reverse=True)
    assert learning_rate_at(101, update(learning_rate=1.0, schedule="cosine"), steps=101) == pytest.approx(
        0.1
    )


@given(steps, schedules, st.integers(0, 60), st.integers(0, 200))
def test_the_rate_is_never_zero_nor_above_the_recipes(
    count: int, schedule: str, warmup: int, step: int
) -> None:
    recipe = update(learning_rate=1.0, schedule=schedule, warmup_steps=warmup)
    rate = learning_rate_at(step, recipe, steps=count)
    assert 0 < rate <= 1
    if step >= warmup:
        assert rate >= 0.1 - 1e-12

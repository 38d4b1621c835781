"""Rows shared by several processes, compared with the same rows in one process."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import load
from tests.update.sequence_processes import CASES, numbers
from tests.update.test_memory import shape
from vtune.errors import RecipeError
from vtune.models.sequence_parallel import even, spread_out
from vtune.update.sequence import check_sequence_parallel, possible_sizes


@pytest.mark.slow
@pytest.mark.train
def test_two_processes_give_the_log_probabilities_and_gradients_of_one(pair: Path) -> None:
    folders = [pair / "even", pair / "even3"]
    found = torch.load(pair / "shared-rows")
    assert len(found) == 2 * len(CASES)
    for folder in folders:
        policy = load(folder)
        for case, items_of in CASES.items():
            ours, alone = found[str(folder), case], numbers(policy, items_of(policy), None)
            assert len(ours) > 40
            for name in ("logprobs", "entropy"):
                torch.testing.assert_close(ours[name], alone[name], rtol=0, atol=1e-5, msg=f"{case}: {name}")
            norms = {name: float(value.norm()) for name, value in alone.items()}
            largest = max(norms.values())
            assert largest > 1
            for name, wanted in alone.items():
                apart = float((ours[name] - wanted).norm())
                assert apart <= 3e-6 * max(norms[name], 1e-2 * largest), f"{case}: {name}"


def test_an_impossible_split_is_refused_with_the_possible_ones(tiny: Path) -> None:
    three = shape(tiny)  # three heads
    assert possible_sizes(three) == [1, 3]
    check_sequence_parallel(3, 6, three)
    with pytest.raises(RecipeError, match="3 attention heads and 3 key heads") as error:
        check_sequence_parallel(2, 2, three)
    assert error.value.fix is not None
    assert "1, 3" in error.value.fix
    with pytest.raises(RecipeError, match="6 processes do not split into groups of"):
        check_sequence_parallel(4, 6, None)


@given(st.lists(st.integers(4, 5000), min_size=1, max_size=30), st.integers(1, 8))
def test_pictures_are_distributed_evenly(sizes: list[int], parts: int) -> None:
    owners = spread_out(sizes, parts)
    loads = [sum(size for size, owner in zip(sizes, owners, strict=True) if owner == n) for n in range(parts)]
    assert sum(loads) == sum(sizes)
    # The fullest exceeds the emptiest by at most one picture.
    assert max(loads) - min(loads) <= max(sizes)


@given(st.integers(0, 10_000), st.integers(1, 16))
def test_parts_are_of_similar_size(count: int, parts: int) -> None:
    found = even(count, parts)
    assert (sum(found), len(found)) == (count, parts)
    assert max(found) - min(found) <= 1

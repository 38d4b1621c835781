import random
from dataclasses import dataclass, fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtune.metrics.faithfulness import Estimate, faithfulness


@dataclass(frozen=True)
class Looked:
    correct: bool | None
    calls: int
    any_faithful: bool | None
    flagged: int = 0


ROWS = [
    Looked(True, 1, True),
    Looked(True, 2, True),
    Looked(True, 1, False, flagged=1),
    Looked(True, 0, False),
    Looked(False, 1, True),
    Looked(False, 4, False, flagged=3),
    Looked(False, 0, False),
    Looked(False, 3, False),
    Looked(None, 1, True),
    Looked(True, 1, None),
]


def value(estimate: Estimate | None) -> float:
    assert estimate is not None
    assert estimate.low <= estimate.value <= estimate.high
    return estimate.value


def test_both_denominators() -> None:
    result = faithfulness(ROWS, seed=0)
    assert (result.n, result.n_unscored) == (8, 2)
    assert value(result.accuracy) == 0.5
    assert value(result.faithful_of_correct) == 0.5
    assert value(result.faithful_of_all) == 0.25
    assert value(result.unfaithful_of_correct) == value(result.no_tool_of_correct) == 0.25
    assert value(result.unfaithful_of_all) == value(result.no_tool_of_all) == 0.125
    assert value(result.shown_of_all) == 3 / 8
    assert value(result.tool_calls) == 12 / 8
    assert value(result.red_flags) == 4 / 8


def test_the_buckets_of_figure_8() -> None:
    buckets = {bucket.calls: bucket for bucket in faithfulness(ROWS, seed=0).buckets}
    assert list(buckets) == ["0", "1", "2", "3+"]
    assert [value(bucket.share) for bucket in buckets.values()] == [2 / 8, 3 / 8, 1 / 8, 2 / 8]
    assert [value(bucket.correct_share) for bucket in buckets.values()] == [1 / 8, 2 / 8, 1 / 8, 0]
    assert [value(bucket.accuracy) for bucket in buckets.values()] == pytest.approx([1 / 2, 2 / 3, 1, 0])


@pytest.mark.parametrize("rows", [[], [Looked(None, 1, True)]])
def test_where_nothing_is_scored_nothing_is_claimed(rows: list[Looked]) -> None:
    result = faithfulness(rows, seed=0)
    assert (result.n, result.n_unscored) == (0, len(rows))
    assert (
        result.accuracy is result.faithful_of_correct is result.faithful_of_all is result.tool_calls is None
    )


def test_without_a_right_answer_only_its_denominator_is_empty() -> None:
    result = faithfulness([Looked(False, 1, True)] * 3, seed=0)
    assert result.faithful_of_correct is None
    assert value(result.faithful_of_all) == 0.0


def test_the_interval_is_that_of_the_binomial() -> None:
    rows = [Looked(number < 300, 1, True) for number in range(1000)]
    accuracy = faithfulness(rows, seed=0).accuracy
    assert accuracy is not None
    half = 1.96 * np.sqrt(0.3 * 0.7 / 1000)
    assert (accuracy.low, accuracy.high) == pytest.approx((0.3 - half, 0.3 + half), abs=0.005)


@settings(max_examples=30)
@given(
    st.lists(st.builds(Looked, st.booleans(), st.integers(1, 5), st.booleans()), max_size=20),
    st.lists(st.builds(Looked, st.booleans(), st.just(0), st.just(False)), max_size=10),
    st.integers(0, 9),
)
def test_shares_add_up_and_neither_order_nor_run_changes_them(
    looked: list[Looked], blind: list[Looked], seed: int
) -> None:
    rows = looked + blind
    result = faithfulness(rows, seed=seed)
    mixed = rows[:]
    random.Random(seed).shuffle(mixed)
    assert faithfulness(mixed, seed=seed) == result
    if result.n:
        parts = (result.faithful_of_all, result.unfaithful_of_all, result.no_tool_of_all)
        assert sum(map(value, parts)) == pytest.approx(value(result.accuracy))
        assert sum(value(bucket.share) for bucket in result.buckets) == pytest.approx(1)
    assert {field.name for field in fields(result)} >= {"faithful_of_correct", "faithful_of_all"}

import random
from dataclasses import dataclass, field, fields, replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtune.metrics.faithfulness import faithfulness
from vtune.metrics.intervals import Estimate

NUMBERS = count()


@dataclass(frozen=True)
class Looked:
    correct: bool | None
    calls: int
    any_faithful: bool | None
    flagged: int = 0
    small: bool = False
    why: str = ""
    by_chance: float | None = 0.25
    no_chance: str = "not judged by boxes"
    cluster: str = field(default_factory=lambda: f"question {next(NUMBERS)}")


ROWS = [
    Looked(True, 1, True),
    Looked(True, 2, True),
    Looked(True, 1, False, flagged=1, small=True),
    Looked(True, 0, False),
    Looked(False, 1, True),
    Looked(False, 4, False, flagged=3),
    Looked(False, 0, False),
    Looked(False, 3, False, small=True),
    Looked(None, 1, True),
    Looked(True, 1, None, why="the judge is down"),
]


def value(estimate: Estimate | None) -> float:
    assert estimate is not None
    if estimate.low is None or estimate.high is None:
        assert estimate.low is estimate.high is None
        return estimate.value
    assert estimate.low <= estimate.value <= estimate.high
    return estimate.value


def test_shares_have_both_denominators() -> None:
    result = faithfulness(ROWS, seed=0, max_unaudited=0.2)
    assert (result.n, result.n_unscored, result.n_unaudited, result.no_shares) == (8, 1, 1, None)
    assert value(result.accuracy) == 0.5
    assert value(result.faithful_of_correct) == 0.5
    assert value(result.faithful_of_all) == 0.25
    assert value(result.unfaithful_of_correct) == value(result.no_tool_of_correct) == 0.25
    assert value(result.unfaithful_of_all) == value(result.no_tool_of_all) == 0.125
    assert value(result.shown_of_all) == 3 / 8
    assert value(result.tool_calls) == 12 / 8
    assert value(result.red_flags) == 4 / 8


def test_the_buckets_are_those_of_figure_8() -> None:
    buckets = {bucket.calls: bucket for bucket in faithfulness(ROWS, seed=0, max_unaudited=0.2).buckets}
    assert list(buckets) == ["0", "1", "2", "3+"]
    # The trajectory with unknown looks counts, as its answer is known.
    assert [value(bucket.share) for bucket in buckets.values()] == pytest.approx([2 / 9, 4 / 9, 1 / 9, 2 / 9])
    assert [value(bucket.correct_share) for bucket in buckets.values()] == pytest.approx(
        [1 / 9, 3 / 9, 1 / 9, 0]
    )
    assert [value(bucket.accuracy) for bucket in buckets.values()] == pytest.approx([1 / 2, 3 / 4, 1, 0])


LOOKS = ("faithful", "unfaithful", "small")


def test_if_calls_cannot_be_audited_there_are_no_shares() -> None:
    free = [Looked(True, 0, False)] * 90 + [Looked(False, 0, False)] * 6
    blind = [Looked(True, 1, None, why="no boxes"), Looked(True, 2, None, why="no boxes")]
    seen = [Looked(True, 1, True)] * 2
    result = faithfulness([*free, *blind, *seen], seed=0, max_unaudited=0.05)
    assert result.no_shares == "2 of 4 trajectories with tool calls could not be audited: no boxes"
    assert [getattr(result, f"{name}_of_{of}") for name in LOOKS for of in ("all", "correct")] == [None] * 6
    assert result.shown_of_all is None
    assert (result.n, result.n_unscored, result.n_unaudited) == (100, 0, 2)
    assert value(result.accuracy) == 0.94
    assert value(result.no_tool_of_all) == 0.9
    assert value(result.tool_calls) == 0.05
    assert [value(bucket.share) for bucket in result.buckets] == [0.96, 0.03, 0.01, 0.0]
    assert faithfulness([*free, *blind, *seen], seed=0, max_unaudited=0.5).no_shares is None
    assert faithfulness([*free, *seen], seed=0, max_unaudited=0.0).no_shares is None


def test_full_views_and_small_crops_are_distinguished_among_unfaithful_ones() -> None:
    result = faithfulness(ROWS, seed=0, max_unaudited=0.2)
    assert value(result.small_of_correct) == value(result.unfaithful_of_correct) == 0.25
    assert value(result.small_of_all) == 0.125


@pytest.mark.parametrize("rows", [[], [Looked(None, 1, True)]])
def test_without_scores_nothing_is_claimed(rows: list[Looked]) -> None:
    result = faithfulness(rows, seed=0, max_unaudited=0.2)
    assert (result.n, result.n_unscored, result.n_unaudited) == (0, len(rows), 0)
    assert (
        result.accuracy is result.faithful_of_correct is result.faithful_of_all is result.tool_calls is None
    )


def test_without_a_right_answer_only_its_denominator_is_empty() -> None:
    result = faithfulness([Looked(False, 1, True)] * 3, seed=0, max_unaudited=0.2)
    assert result.faithful_of_correct is None
    assert value(result.faithful_of_all) == 0.0


def test_the_chance_level_and_the_share_have_the_same_denominator() -> None:
    looked = [
        Looked(True, 1, True, by_chance=0.0),
        Looked(True, 0, False, by_chance=0.5),
        Looked(False, 1, True, by_chance=1.0),
    ]
    result = faithfulness(looked, seed=0, max_unaudited=0.2)
    assert value(result.faithful_of_correct) == 0.5
    assert value(result.faithful_by_chance) == 0.25
    assert result.no_chance is None
    unknown = [*looked, Looked(True, 1, True, by_chance=None)]
    result = faithfulness(unknown, seed=0, max_unaudited=0.2)
    assert value(result.faithful_of_correct) == pytest.approx(2 / 3)
    assert result.faithful_by_chance is None
    assert result.no_chance == "no chance level: 1 of 3 right answers are not judged by boxes"
    wrong = [*looked, replace(unknown[-1], correct=False)]
    assert faithfulness(wrong, seed=0, max_unaudited=0.2).no_chance is None


def test_the_interval_is_binomial() -> None:
    rows = [Looked(number < 300, 1, True) for number in range(1000)]
    accuracy = faithfulness(rows, seed=0, max_unaudited=0.2).accuracy
    assert accuracy is not None
    half = 1.96 * np.sqrt(0.3 * 0.7 / 1000)
    assert (accuracy.low, accuracy.high) == pytest.approx((0.3 - half, 0.3 + half), abs=0.005)


@settings(max_examples=30)
@given(
    st.lists(st.builds(Looked, st.booleans(), st.integers(1, 5), st.booleans()), max_size=20),
    st.lists(st.builds(Looked, st.booleans(), st.just(0), st.just(False)), max_size=10),
    st.integers(0, 9),
)
def test_shares_add_up_and_do_not_depend_on_order_or_run(
    looked: list[Looked], blind: list[Looked], seed: int
) -> None:
    rows = looked + blind
    result = faithfulness(rows, seed=seed, max_unaudited=0.2)
    mixed = rows[:]
    random.Random(seed).shuffle(mixed)
    assert faithfulness(mixed, seed=seed, max_unaudited=0.2) == result
    if result.n:
        parts = (result.faithful_of_all, result.unfaithful_of_all, result.no_tool_of_all)
        assert sum(map(value, parts)) == pytest.approx(value(result.accuracy))
        assert sum(value(bucket.share) for bucket in result.buckets) == pytest.approx(1)
    assert {field.name for field in fields(result)} >= {"faithful_of_correct", "faithful_of_all"}

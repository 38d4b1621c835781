from dataclasses import dataclass, replace

import pytest

from vtune.metrics.calls import calls_of


@dataclass(frozen=True)
class Row:
    """An audited trajectory."""

    cluster: str = "a"
    correct: bool | None = True
    calls: int = 1
    any_faithful: bool | None = True
    helpful: int | None = 1
    first: int | None = 1
    unused: int = 0
    repeated: int = 0
    looked: bool = True
    accepted: bool | None = True


ROWS = [
    Row(cluster="0", calls=4, helpful=1, first=2, unused=1, repeated=1),
    Row(cluster="1", calls=2, helpful=2),
    Row(cluster="2", calls=2, helpful=0, first=None, any_faithful=False, accepted=None, correct=False),
    Row(cluster="3", calls=0, helpful=0, first=None, any_faithful=False, looked=False, accepted=None),
    Row(cluster="4", calls=1, correct=None),
]


def value(rows: list[Row], name: str, among: str = "all") -> float | None:
    found = getattr(calls_of(rows, seed=0, max_unaudited=0.5)[among], name)
    return found if found is None or isinstance(found, int) else found.value


def test_each_share_is_given_with_both_denominators() -> None:
    assert (value(ROWS, "n"), value(ROWS, "calls")) == (3, 8)
    assert (value(ROWS, "n", "correct"), value(ROWS, "calls", "correct")) == (2, 6)
    assert value(ROWS, "helpful_of_calls") == pytest.approx(3 / 8)
    assert value(ROWS, "helpful_of_calls", "correct") == pytest.approx(3 / 6)
    assert value(ROWS, "helpful_ratio") == pytest.approx((1 / 4 + 1 + 0) / 3)
    assert value(ROWS, "keep_unhelpful") == pytest.approx(2 / 3)
    assert value(ROWS, "keep_unhelpful", "correct") == 1.0
    # The trajectory whose only picture was called unhelpful leaves the denominator.
    assert value(ROWS, "drop_unhelpful") == 1.0
    assert value([*ROWS, Row(cluster="5", accepted=False)], "drop_unhelpful") == pytest.approx(2 / 3)
    assert value(ROWS, "unused_of_calls") == value(ROWS, "repeated_of_calls") == pytest.approx(1 / 8)
    assert value(ROWS, "late_of_calls") == pytest.approx((2 + 1) / 8)
    assert value(ROWS, "first_useful") == pytest.approx(1.5)


def test_trajectories_not_judged_per_call_are_in_no_share_of_helpful_calls() -> None:
    rows = [*ROWS, Row(cluster="5", calls=9, helpful=None)]
    assert value(rows, "helpful_of_calls") == pytest.approx(3 / 8)
    assert value(rows, "unused_of_calls") == pytest.approx(1 / 17)


def test_if_hardly_any_call_was_judged_no_share_of_looks_is_given() -> None:
    """Only calls that return no picture can be judged without a judge, and these are never helpful."""
    blind = Row(calls=2, any_faithful=None, helpful=None, first=None, accepted=None, repeated=1)
    empty = Row(any_faithful=False, helpful=0, first=None, looked=False, accepted=None)
    rows = [*(replace(blind, cluster=str(n)) for n in range(9)), replace(empty, cluster="9")]
    for name in ("helpful_of_calls", "helpful_ratio", "late_of_calls", "first_useful"):
        assert value(rows, name) is None
    assert value(rows, "keep_unhelpful") is value(rows, "drop_unhelpful") is None
    assert (value(rows, "n"), value(rows, "calls")) == (10, 19)
    assert value(rows, "repeated_of_calls") == pytest.approx(9 / 19)


def test_without_calls_the_shares_are_undefined() -> None:
    found = calls_of(
        [Row(calls=0, helpful=0, first=None, looked=False, accepted=None)], seed=0, max_unaudited=0.5
    )["all"]
    assert (found.n, found.calls) == (0, 0)
    assert found.helpful_of_calls is found.helpful_ratio is found.first_useful is None
    assert found.keep_unhelpful is found.drop_unhelpful is None

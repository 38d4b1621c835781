"""Balancing items over processes by cost: what moves, that nothing is lost, and that it pays off."""

import random
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.update.balance_processes import SHARES, compared
from tests.update.balance_processes import item as item_of
from vtune.update.balance import LEAST, Move, balanced, bundles, moves_of
from vtune.update.batch import Item
from vtune.update.flops import Work
from vtune.update.ranks import Ranks

IMAGE = 7

Costs = st.lists(st.lists(st.floats(0.1, 1000.0), max_size=12), min_size=1, max_size=9)


def loads_after(costs: list[list[float]], moves: list[Move]) -> list[float]:
    loads = [sum(own) for own in costs]
    for source, number, target in moves:
        loads[source] -= costs[source][number]
        loads[target] += costs[source][number]
    return loads


@given(Costs)
def test_the_fullest_process_never_gets_more_and_no_bundle_moves_twice(costs: list[list[float]]) -> None:
    moves = moves_of(costs)
    assert len({(move.source, move.number) for move in moves}) == len(moves)
    before, after = loads_after(costs, []), loads_after(costs, moves)
    assert max(after) <= max(before) * (1 + 1e-9)
    assert sum(after) == pytest.approx(sum(before))
    # A bundle that a process has received is not passed on.
    assert all(move.number < len(costs[move.source]) and move.source != move.target for move in moves)
    assert moves == moves_of(costs)


@given(Costs)
def test_no_further_move_would_help_the_fullest_process(costs: list[list[float]]) -> None:
    moves = moves_of(costs)
    loads = loads_after(costs, moves)
    source, apart = loads.index(max(loads)), max(loads) - min(loads)
    gone = {move.number for move in moves if move.source == source}
    least = LEAST * sum(loads) / len(loads)
    gains = [min(cost, apart - cost) for number, cost in enumerate(costs[source]) if number not in gone]
    assert all(gain <= least * (1 + 1e-6) + 1e-6 for gain in gains)


def test_equal_shares_do_not_move() -> None:
    assert moves_of([[3.0, 2.0], [5.0], [1.0] * 5]) == []
    assert moves_of([[], []]) == []


def test_a_single_process_keeps_everything() -> None:
    moves = moves_of([[4.0, 3.0, 2.0, 1.0], []])
    assert sorted(loads_after([[4.0, 3.0, 2.0, 1.0], []], moves)) == [5.0, 5.0]


def test_unequal_shares_are_balanced_to_within_1_percent_of_the_mean() -> None:
    """Eight processes with 32 groups each, whose lengths vary by half."""
    rng = random.Random(0)
    costs = [[rng.lognormvariate(0, 0.5) for _ in range(32)] for _ in range(8)]
    mean = sum(map(sum, costs)) / 8
    before, after = (max(loads_after(costs, moves)) / mean for moves in ([], moves_of(costs)))
    assert before > 1.05
    assert after < 1.01


def item(token_ids: list[int], images: tuple[bytes, ...] = ()) -> Item:
    return Item(token_ids, images, [False] + [True] * (len(token_ids) - 1))


def test_a_group_moves_together_but_a_common_system_prompt_does_not_bind() -> None:
    system = list(range(100, 140))
    groups = [[item([*system, *[first] * 80, 9, number]) for number in range(3)] for first in (1, 2)]
    found = bundles(
        [*groups[1], *groups[0]], image_id=IMAGE, merge=2, cost=lambda work: work.tokens + work.patches
    )
    assert [[one.token_ids[41] for one in bundle.items] for bundle in found] == [[1] * 3, [2] * 3]
    # The second and third item of a group cost only their own last tokens.
    assert [bundle.cost for bundle in found] == [122 + 1 + 1, 122 + 1 + 1]


def test_work_counts_shared_tokens_once_and_pictures_by_patches() -> None:
    seen: list[Work] = []
    shown = [1, *[IMAGE] * 30, 2]
    bundles(
        [item([*shown, 3], (b"a",)), item([*shown, 4], (b"a",))],
        image_id=IMAGE,
        merge=2,
        cost=lambda work: seen.append(work) or 1.0,  # type: ignore[func-returns-value]
    )
    assert seen == [Work(33, 33 * 34 / 2, 120, 32), Work(1, 32 + 1, 0, 32)]


def test_a_single_process_keeps_the_order() -> None:
    given = [item([1, 2, 3]), item([1])]
    alone = Ranks(rank=0, world=1, local=0)
    assert balanced(given, alone, image_id=IMAGE, merge=2, cost=lambda _: 1.0) == given


@pytest.mark.slow
def test_moved_items_arrive_with_two_processes(pair: Path) -> None:
    found = torch.load(pair / "balanced")
    assert len(found) == len(SHARES)
    for shares, after in zip(SHARES, found, strict=True):
        assert len(after) == 2
        expected = [compared(item_of(number)) for share in shares for number in share]
        assert sorted(one for share in after for one in share) == sorted(expected)
        sums = [sum(len(ids) for ids, *_ in share) for share in after]
        assert max(sums) - min(sums) <= 13

"""Balances an update's items over processes by cost, because the slowest process decides when it ends."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vtune.update.batch import Item, begun_alike
from vtune.update.flops import Work
from vtune.update.ranks import Ranks

LEAST = 0.01
"""As a share of the mean load; a move that gains less is not made. Ours."""
ALIKE = 0.5
"""As a share of an item's tokens; an item that shares this much with its neighbour stays with it. On
different processes, the shared part would be computed twice. Ours."""


class Bundle(NamedTuple):
    """Items that move together."""

    items: list[Item]
    cost: float


class Move(NamedTuple):
    """A bundle that moves to another process."""

    source: int
    number: int
    """Its index among the bundles of its process."""
    target: int


def balanced(
    items: Sequence[Item], ranks: Ranks, *, image_id: int, merge: int, cost: Callable[[Work], float]
) -> list[Item]:
    """This process's items of an update, rebalanced so that no process has much more to do than another.

    All processes call it together. Only items that move are sent, from process to process.

    Args:
        items: This process's own share.
        ranks: This process and the others.
        image_id: Token id of the image placeholder.
        merge: Patches per side that become one token.
        cost: Cost of an amount of work, in any unit.
    """
    if ranks.world == 1:
        return list(items)
    mine = bundles(items, image_id=image_id, merge=merge, cost=cost)
    moves = moves_of(ranks.gather([bundle.cost for bundle in mine]))
    gone = {move.number: move.target for move in moves if move.source == ranks.rank}
    kept = [item for number, bundle in enumerate(mine) if number not in gone for item in bundle.items]
    # All processes go through the transfers in the same order, so that no two wait for each other.
    for source, target in sorted({(move.source, move.target) for move in moves}):
        if ranks.rank == source:
            ranks.send([mine[number].items for number, to in gone.items() if to == target], target)
        elif ranks.rank == target:
            kept += [item for bundle in ranks.receive(source) for item in bundle]
    return kept


def bundles(
    items: Sequence[Item], *, image_id: int, merge: int, cost: Callable[[Work], float]
) -> list[Bundle]:
    """Groups items with a shared prefix; the shared part is counted once."""
    found: list[Bundle] = []
    for item, size, shared in begun_alike(items, image_id=image_id):
        together = bool(found) and shared >= ALIKE * size
        first = found.pop() if together else Bundle([], 0.0)
        new = shared if together else 0
        own = size - new
        work = Work(
            tokens=own,
            pairs=own * new + own * (own + 1) / 2,
            patches=sum(token == image_id for token in item.token_ids[new:]) * merge**2,
            scored=item.counted,
        )
        found.append(Bundle([*first.items, item], first.cost + cost(work)))
    return found


def moves_of(costs: Sequence[Sequence[float]]) -> list[Move]:
    """Moves from the most to the least loaded process, as long as the former gains from them.

    Args:
        costs: For each process, the cost of each of its bundles.
    """
    loads = [sum(own) for own in costs]
    least = LEAST * sum(loads) / len(loads)
    here = [dict(enumerate(own)) for own in costs]
    moves: list[Move] = []
    while True:
        source, target = loads.index(max(loads)), loads.index(min(loads))
        apart = loads[source] - loads[target]
        # A move must leave both below the fullest; the best bundle is half of the difference.
        found = [(abs(apart / 2 - cost), number) for number, cost in here[source].items() if cost < apart]
        if not found:
            return moves
        _, number = min(found)
        cost = here[source].pop(number)
        if min(cost, apart - cost) < least:
            return moves
        loads[source] -= cost
        loads[target] += cost
        moves.append(Move(source, number, target))

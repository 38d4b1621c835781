"""Writes the items that two processes have after balancing to a file."""

import torch

from vtune.update.balance import balanced
from vtune.update.batch import Item
from vtune.update.ranks import Ranks
from vtune.update.starting import start

SHARES: tuple[tuple[list[int], list[int]], ...] = (
    (list(range(12)), []),
    ([], list(range(3))),
    ([1, 2], [1, 2]),
    ([], []),
)
"""The item numbers of each of the two processes, per case."""
Compared = tuple[list[int], list[float], list[bool]]


def item(number: int) -> Item:
    ids = [100 + number] * (10 + number)
    count = 9 + number
    return Item(ids, (), [False] + [True] * count, [0.5] * count, [-1.0] * count, [True] * count)


def compared(one: Item) -> Compared:
    """The part of an item that is compared."""
    return list(one.token_ids), list(one.advantages), list(one.off_policy)


def main(out: str) -> None:
    ranks = start(Ranks.of_this_process())
    found = []
    for shares in SHARES:
        mine = [item(number) for number in shares[ranks.rank]]
        after = balanced(mine, ranks, image_id=7, merge=2, cost=lambda work: work.tokens)
        found.append(ranks.gather([compared(one) for one in after]))
    if ranks.first:
        torch.save(found, out)

"""Balance: no answer, category or source may dominate."""

import random
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from statistics import median_low
from typing import Literal, TypeVar

from pydantic import Field

from vtune.curate.filters import FILTERS, Corpus, FilterPart
from vtune.curate.item import Item, Selected
from vtune.curate.reasoning import answer_of

T = TypeVar("T", bound=Hashable)


class Balance(Selected):
    """Cuts large groups of a source down to a multiple of its median group, at random.

    V-Triune (appendix A) balances counting data per category but does not say how.
    """

    by: Literal["ground_truth", "ability", "verifier"] = "ground_truth"
    """What defines a group."""
    times_median: float = Field(default=1.5, gt=0)
    """Limit on a group's samples, as a multiple of the median group's size (the smaller of two middle ones);
    ours."""


def group_of(spec: Balance, item: Item) -> str:
    """The group that a sample belongs to."""
    sample = item.sample
    groups = {"ground_truth": answer_of(sample), "ability": sample.ability, "verifier": sample.verifier}
    return groups[spec.by]


def overfull(spec: Balance, entries: Sequence[tuple[str, str]], rng: random.Random) -> Mapping[int, str]:
    """Index -> reason for the samples that exceed their group's limit.

    Args:
        spec: What to balance.
        entries: (source, group) of each sample.
        rng: Chooses which samples to drop.
    """
    groups: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, (source, group) in enumerate(entries):
        groups[source][group].append(index)
    dropped: dict[int, str] = {}
    for source in sorted(groups):
        sizes = [len(members) for members in groups[source].values()]
        room = max(1, int(median_low(sizes) * spec.times_median))
        for group, members in sorted(groups[source].items()):
            for index in rng.sample(members, max(0, len(members) - room)):
                dropped[index] = f"{spec.by} {group!r} has {len(members)} samples, {room} are kept"
    return dropped


def random_subset(members: Sequence[T], wanted: int | None, rng: random.Random) -> set[T]:
    """All members, or `wanted` of them, chosen at random."""
    return set(members) if wanted is None or wanted >= len(members) else set(rng.sample(members, wanted))


FILTERS.add(
    "balance",
    FilterPart(
        Balance,
        Corpus(group_of, overfull),
        keeps={"ground_truth": "2"},
        beside=({"ground_truth": "3"},),
        drops={"ground_truth": "3"},
    ),
)

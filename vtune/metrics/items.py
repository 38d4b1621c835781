"""What an evaluation found for each question: the rows by which two evaluations are compared."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from vtune.metrics.benchmarks import Mark
from vtune.metrics.scores import cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One question, with the scores of its rollouts."""

    id: str
    source: str
    category: str | None
    """`category` of the data; None if there is none."""
    cluster: str
    """Questions with the same cluster belong together (`vtune.schema.clusters`)."""
    scores: tuple[float | None, ...]
    """One per rollout, in [0, 1]; None if it could not be scored."""

    @property
    def known(self) -> list[float]:
        """Scores of the scored rollouts."""
        return [score for score in self.scores if score is not None]

    @property
    def score(self) -> float | None:
        """The mean over the scored rollouts; None if there are none."""
        return fmean(self.known) if self.known else None


def items_of(marks: Iterable[Mark]) -> list[Item]:
    """One item per question, in the order in which they were asked."""
    grouped: dict[str, list[Mark]] = {}
    for mark in marks:
        grouped.setdefault(mark.sample_id, []).append(mark)
    return [_item(name, group) for name, group in grouped.items()]


def _item(name: str, marks: list[Mark]) -> Item:
    first = marks[0]
    category = first.extra.get("category")
    return Item(
        id=name,
        source=first.source,
        category=category if isinstance(category, str) and category else None,
        cluster=cluster(first),
        scores=tuple(mark.score for mark in marks),
    )

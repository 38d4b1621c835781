"""What tool calls were good for: how many helped, how many did not matter, and when the first one helped."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from vtune.metrics.audited import Audited, Estimates, too_few_audited
from vtune.metrics.intervals import Estimate


class Row(Audited, Protocol):
    """What is known about one trajectory."""

    @property
    def helpful(self) -> int | None:
        """Calls that show a target; None unless every call was judged."""
        ...

    @property
    def first(self) -> int | None:
        """Number of the first call that shows a target, from 1."""
        ...

    @property
    def unused(self) -> int:
        """Calls that cut out a region but show it to nobody."""
        ...

    @property
    def repeated(self) -> int:
        """Calls that show what was shown before."""
        ...

    @property
    def looked(self) -> bool:
        """Whether any call returned a picture."""
        ...

    @property
    def accepted(self) -> bool | None:
        """Whether a picture that the conversation itself does not call unhelpful shows a target; None if
        there is no such picture, or it is unknown.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The calls of some trajectories. None if a denominator is 0, and, for everything about what calls show,
    if too few looks could be judged: only calls without a picture would be left.
    """

    n: int
    """Trajectories with calls."""
    calls: int
    """Their calls."""
    helpful_of_calls: Estimate | None
    """Calls that show a target."""
    helpful_ratio: Estimate | None
    """The same share per trajectory, averaged: what FaithEyes rewards (r_tool)."""
    unused_of_calls: Estimate | None
    """Declared but unused: calls that cut out a region but show it to nobody."""
    repeated_of_calls: Estimate | None
    """Calls that show what was shown before."""
    late_of_calls: Estimate | None
    """Calls after the one that first showed a target."""
    first_useful: Estimate | None
    """Number of the first call that shows a target, from 1, averaged over trajectories with one."""
    keep_unhelpful: Estimate | None
    """FaithEyes' share of that name: of trajectories that saw a picture, those in which one shows a target,
    including pictures that the policy itself finds unhelpful. Over right answers, this is what its paper
    reports."""
    drop_unhelpful: Estimate | None
    """FaithEyes' other share: the same without pictures that the conversation itself calls unhelpful
    (`rollout.feedback`), hence without trajectories that have only such pictures. Without such verdicts both
    shares are equal."""


def calls_of(rows: Iterable[Row], *, seed: int, max_unaudited: float) -> dict[str, Calls]:
    """`correct`, over right answers, and `all`, over all scored answers.

    Args:
        rows: One per audited trajectory.
        seed: Seed of the bootstrap.
        max_unaudited: As in `vtune.metrics.faithfulness.faithfulness`.

    Source: FaithEyes (Wang et al. 2026, arXiv 2607.28225), README and `judge_faithfulness.py`, for
    `helpful_ratio`, `keep_unhelpful` and `drop_unhelpful`; the others are ours.
    """
    scored = [row for row in rows if row.correct is not None]
    blind = too_few_audited(scored, max_unaudited)
    return {
        "correct": _calls([row for row in scored if row.correct], seed, blind=blind),
        "all": _calls(scored, seed, blind=blind),
    }


def _calls(rows: Sequence[Row], seed: int, *, blind: bool) -> Calls:
    users = [row for row in rows if row.calls]
    audited = [] if blind else users
    known = [row for row in audited if row.helpful is not None]
    found = [row for row in audited if row.first is not None]
    looked = [row for row in audited if row.looked and row.any_faithful is not None]
    accepted = [row for row in audited if row.accepted is not None]

    def of_calls(among: Sequence[Row], parts: Sequence[int]) -> Estimate | None:
        return Estimates(among, seed).share(parts, [row.calls for row in among])

    return Calls(
        n=len(users),
        calls=sum(row.calls for row in users),
        helpful_of_calls=of_calls(known, [row.helpful or 0 for row in known]),
        helpful_ratio=Estimates(known, seed).share([(row.helpful or 0) / row.calls for row in known]),
        unused_of_calls=of_calls(users, [row.unused for row in users]),
        repeated_of_calls=of_calls(users, [row.repeated for row in users]),
        late_of_calls=of_calls(known, [row.calls - row.first if row.first else 0 for row in known]),
        first_useful=Estimates(found, seed).mean([row.first or 0 for row in found]),
        keep_unhelpful=Estimates(looked, seed).share([bool(row.any_faithful) for row in looked]),
        drop_unhelpful=Estimates(accepted, seed).share([bool(row.accepted) for row in accepted]),
    )

"""What a policy does before it answers, and what its answers follow where a picture has a shortcut."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from vtune.metrics.audited import Audited, Estimates, too_few_audited
from vtune.metrics.intervals import Estimate

Look = Literal["none", "whole", "miss", "shows"]
"""none: no call. shows: a call shows a target. whole: no call does, but one shows (nearly) a whole picture.
miss: calls that do neither."""

LOOKS: tuple[Look, ...] = ("none", "whole", "miss", "shows")


class Row(Audited, Protocol):
    """What is known about one trajectory."""

    @property
    def whole(self) -> bool:
        """Whether a call shows (nearly) a whole picture."""
        ...

    @property
    def by_cue(self) -> bool | None:
        """Whether the answer follows a wrong cue in the picture; None if there is no cue, or it is right, so
        that it is unknown what the answer follows.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """The trajectories that look in one way. None if a denominator is 0."""

    n: int | None
    """None if too few looks could be judged."""
    share: Estimate | None
    """Share of all trajectories."""
    accuracy: Estimate | None
    """Share of right answers among these."""
    by_cue: Estimate | None
    """Of these, where a cue gives a wrong answer: share that gives the cue's answer."""
    by_target: Estimate | None
    """Of the same: share of right answers. The rest follow neither."""


UNKNOWN = Habit(n=None, share=None, accuracy=None, by_cue=None, by_target=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How often a policy looks in each way, and what its answers follow then.

    If too many trajectories with calls could not be audited, mostly those without calls would be left: then
    nothing is said about how calls look, and `everything` and `none` cover all with a scored answer.
    """

    n: int
    """Trajectories counted."""
    left_out: int
    """The others: unscored, or with looks that could not be judged."""
    everything: Habit
    none: Habit
    whole: Habit
    miss: Habit
    shows: Habit


def look_of(row: Row) -> Look | None:
    """How a trajectory looks; None if its looks could not be judged."""
    if not row.calls:
        return "none"
    if row.any_faithful is None:
        return None
    return "shows" if row.any_faithful else "whole" if row.whole else "miss"


def habits(rows: Iterable[Row], *, seed: int, max_unaudited: float) -> Habits:
    """Summarise audited trajectories.

    Args:
        rows: One per trajectory.
        seed: Seed of the bootstrap; the same seed gives the same intervals.
        max_unaudited: As in `vtune.metrics.faithfulness.faithfulness`.
    """
    rows = list(rows)
    scored = [row for row in rows if row.correct is not None]
    blind = too_few_audited(scored, max_unaudited)
    counted = scored if blind else [row for row in scored if look_of(row) is not None]
    of = {
        look: UNKNOWN
        if blind and look != "none"
        else _habit(counted, [look_of(row) == look for row in counted], seed)
        for look in LOOKS
    }
    return Habits(
        n=len(counted),
        left_out=len(rows) - len(counted),
        everything=_habit(counted, [True] * len(counted), seed),
        **of,
    )


def _habit(rows: Sequence[Row], inside: Sequence[bool], seed: int) -> Habit:
    """The habit of the rows that are `inside`."""
    estimates = Estimates(rows, seed)
    here = np.array(inside, dtype=np.float64)
    right = here * [bool(row.correct) for row in rows]
    cued = here * [row.by_cue is not None for row in rows]
    cue = cued * [bool(row.by_cue) for row in rows]
    return Habit(
        n=int(here.sum()),
        share=estimates.share(here),
        accuracy=estimates.share(right, here),
        by_cue=estimates.share(cue, cued),
        by_target=estimates.share(right * cued, cued),
    )

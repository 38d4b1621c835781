"""What a policy does before it answers, and what its answers follow where a picture has a shortcut."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from vtune.metrics.audited import Audited, Estimates, too_few_audited
from vtune.metrics.intervals import Estimate

Look = Literal["none", "whole", "miss", "shows"]
"""none: no call. shows: a call shows a target. whole: none does, and one shows (nearly) a whole picture.
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
        """Whether the answer is what a cue in the picture names, the cue being wrong; None where there is no
        cue, or it is right: then nobody knows what the answer follows.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """The trajectories that look in one way. None stands where a denominator is 0."""

    n: int | None
    """None where too few looks could be judged to say it."""
    share: Estimate | None
    """Of all trajectories."""
    accuracy: Estimate | None
    """Right answers among these."""
    by_cue: Estimate | None
    """Of these where a cue names a wrong answer: those that answer what it names."""
    by_target: Estimate | None
    """Of the same: right answers. What is left follows neither."""


UNKNOWN = Habit(n=None, share=None, accuracy=None, by_cue=None, by_target=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How often a policy looks in which way, and what its answers follow then.

    Where too many trajectories with calls could not be audited, those left are the ones without a call: then
    nothing is said of how calls look, and `everything` and `none` are of all whose answer is scored.
    """

    n: int
    """Trajectories counted."""
    left_out: int
    """All others: unscored, or with looks that could not be judged."""
    everything: Habit
    none: Habit
    whole: Habit
    miss: Habit
    shows: Habit


def look_of(row: Row) -> Look | None:
    """How a trajectory looks; None where its looks could not be judged."""
    if not row.calls:
        return "none"
    if row.any_faithful is None:
        return None
    return "shows" if row.any_faithful else "whole" if row.whole else "miss"


def habits(rows: Iterable[Row], *, seed: int, max_unaudited: float) -> Habits:
    """Summarise audited trajectories.

    Args:
        rows: One per trajectory.
        seed: Of the bootstrap; the same seed gives the same intervals.
        max_unaudited: As of `vtune.metrics.faithfulness.faithfulness`.
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
    """Those of some rows that are inside."""
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

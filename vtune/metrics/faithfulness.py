"""How often right answers rest on a look that shows the target (CodeV, algorithm 1, Table 5, fig. 8)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vtune.metrics.audited import Audited, Estimates, too_few_audited
from vtune.metrics.intervals import Estimate
from vtune.metrics.resampling import Array

BUCKETS = ("0", "1", "2", "3+")
"""Numbers of tool calls that are counted apart (figure 8)."""


class Row(Audited, Protocol):
    """What is known about one trajectory."""

    @property
    def small(self) -> bool:
        """Whether none shows a target, but one shows all of it, too small to count."""
        ...

    @property
    def flagged(self) -> int:
        """Calls with a red flag."""
        ...

    @property
    def why(self) -> str:
        """Why something is None."""
        ...

    @property
    def by_chance(self) -> float | None:
        """Of other questions, those whose targets its looks would have shown; None = not known."""
        ...

    @property
    def no_chance(self) -> str:
        """Why that is None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The trajectories with a certain number of tool calls (figure 8)."""

    calls: str
    """0, 1, 2 or 3+."""
    share: Estimate | None
    """Of all trajectories."""
    correct_share: Estimate | None
    """Of all trajectories, in this bucket and right: the green part of the bar."""
    accuracy: Estimate | None
    """Right ones in this bucket; None where it is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faithfulness:
    """Algorithm 1 with both denominators. None stands where a denominator is 0.

    The right answers split into faithful ones, unfaithful ones (calls, but none shows a target) and ones
    without a tool: `*_of_correct` of the three sum to 1, `*_of_all` to `accuracy`.

    Where too many trajectories with calls could not be audited, the shares of what is left would be those
    of a policy that looks less: whatever is about looks is None then, and `no_shares` says why. All else is
    about all whose answer is scored.
    """

    n: int
    """Trajectories counted."""
    clusters: int
    """Independent questions that they are about, which the intervals rest on (`vtune.metrics.intervals`)."""
    n_unscored: int
    """Trajectories left out, because the answer could not be judged."""
    n_unaudited: int
    """Trajectories with calls, and a scored answer, whose looks could not be judged: left out of all but the
    buckets, or the reason for `no_shares`."""
    no_shares: str | None
    """Why there are no shares of looks; None where there are."""
    accuracy: Estimate | None
    faithful_of_correct: Estimate | None
    """Algorithm 1: of the right answers, those with a call that shows a target."""
    faithful_by_chance: Estimate | None
    """The same share, had their looks been at other questions (`vtune.reward.chance`): a share near it says
    nothing about looking. None where one of them has none. Ours."""
    no_chance: str | None
    """Why right answers have none; None where they do, or nothing is said of looks."""
    faithful_of_all: Estimate | None
    """Table 5: right and faithful, of all."""
    unfaithful_of_correct: Estimate | None
    unfaithful_of_all: Estimate | None
    small_of_correct: Estimate | None
    """Of the unfaithful: no call shows a target as large as it has to be, but one shows all of it, smaller.
    A model that judges as CodeV's does may well see it there (§15): this is not a look beside it."""
    small_of_all: Estimate | None
    no_tool_of_correct: Estimate | None
    no_tool_of_all: Estimate | None
    shown_of_all: Estimate | None
    """A call shows a target, whatever the answer, of all."""
    tool_calls: Estimate | None
    """Mean number of calls; without an interval where all are alike."""
    red_flags: Estimate | None
    """Mean number of calls that carry a red flag."""
    buckets: tuple[Bucket, ...]
    """Of all whose answer is scored: figure 8 needs no look."""


def faithfulness(rows: Iterable[Row], *, seed: int, max_unaudited: float) -> Faithfulness:
    """Summarise audited trajectories.

    Args:
        rows: One per trajectory. Rows with an unscored answer are counted and left out.
        seed: Of the bootstrap; the same seed gives the same intervals.
        max_unaudited: Share of the trajectories with calls, in [0, 1], above which unscored looks are a
            reason to give no shares of looks; below, these trajectories are left out.
    """
    rows = list(rows)
    scored = [row for row in rows if row.correct is not None]
    users = [row for row in scored if row.calls]
    unaudited = [row for row in users if row.any_faithful is None]
    no_shares = None
    if too_few_audited(scored, max_unaudited):
        ((why, times),) = Counter(row.why for row in unaudited).most_common(1)
        most = f", {times} of them for this" if times < len(unaudited) else ""
        no_shares = (
            f"{len(unaudited)} of {len(users)} trajectories with tool calls could not be audited{most}: {why}"
        )
    counted = scored if no_shares else [row for row in scored if row.any_faithful is not None]
    estimates = Estimates(counted, seed)
    correct, shown, small, calls, flagged = _columns(counted)
    used = (calls > 0).astype(np.float64)
    faithful, unfaithful = correct * shown, correct * used * (1 - shown)
    no_tool, shown_small = correct * (1 - used), correct * small

    no_chance = None if no_shares else _no_chance(counted)
    chance = np.array([row.by_chance or 0.0 for row in counted], dtype=np.float64)

    def looks(part: Array, of_all: Array | None = None) -> Estimate | None:
        return None if no_shares else estimates.share(part, of_all)

    return Faithfulness(
        n=len(counted),
        clusters=len({row.cluster for row in counted}),
        n_unscored=len(rows) - len(scored),
        n_unaudited=len(unaudited),
        no_shares=no_shares,
        accuracy=estimates.share(correct),
        faithful_of_correct=looks(faithful, correct),
        faithful_by_chance=None if no_chance else looks(correct * chance, correct),
        no_chance=no_chance,
        faithful_of_all=looks(faithful),
        unfaithful_of_correct=looks(unfaithful, correct),
        unfaithful_of_all=looks(unfaithful),
        small_of_correct=looks(shown_small, correct),
        small_of_all=looks(shown_small),
        no_tool_of_correct=estimates.share(no_tool, correct),
        no_tool_of_all=estimates.share(no_tool),
        shown_of_all=looks(shown),
        tool_calls=estimates.mean(calls),
        red_flags=estimates.mean(flagged),
        buckets=_buckets(scored, seed),
    )


def _no_chance(rows: Sequence[Row]) -> str | None:
    """Why right answers have no chance level; None where all have one."""
    right = [row for row in rows if row.correct]
    lacking = Counter(row.no_chance for row in right if row.by_chance is None)
    if not lacking:
        return None
    ((why, times),) = lacking.most_common(1)
    return f"no chance level: {times} of {len(right)} right answers are {why}"


def _columns(rows: Sequence[Row]) -> Array:
    """Right, shown, small, calls, flagged: shape (5, rows)."""
    table = [(row.correct, bool(row.any_faithful), row.small, row.calls, row.flagged) for row in rows]
    return np.array(table, dtype=np.float64).reshape(-1, 5).T


def _buckets(rows: Sequence[Row], seed: int) -> tuple[Bucket, ...]:
    estimates = Estimates(rows, seed)
    correct, _, _, calls, _ = _columns(rows)
    buckets = []
    for position, name in enumerate(BUCKETS):
        inside = (np.minimum(calls, len(BUCKETS) - 1) == position).astype(np.float64)
        right = inside * correct
        buckets.append(
            Bucket(
                calls=name,
                share=estimates.share(inside),
                correct_share=estimates.share(right),
                accuracy=estimates.share(right, inside),
            )
        )
    return tuple(buckets)

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
"""Numbers of tool calls that are counted separately (figure 8)."""


class Row(Audited, Protocol):
    """What is known about one trajectory."""

    @property
    def small(self) -> bool:
        """Whether no call shows a target large enough, but one shows all of it, too small to count."""
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
        """Share of other questions whose targets its looks would have shown; None = unknown."""
        ...

    @property
    def no_chance(self) -> str:
        """Why `by_chance` is None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The trajectories with a certain number of tool calls (figure 8)."""

    calls: str
    """0, 1, 2 or 3+."""
    share: Estimate | None
    """Share of all trajectories."""
    correct_share: Estimate | None
    """Share of all trajectories that are in this bucket and right: the green part of the bar."""
    accuracy: Estimate | None
    """Share of right ones in this bucket; None if it is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faithfulness:
    """Algorithm 1 with both denominators. None if a denominator is 0.

    Right answers split into faithful ones, unfaithful ones (calls, but none shows a target) and ones without
    a tool: the three `*_of_correct` sum to 1, the three `*_of_all` to `accuracy`.

    If too many trajectories with calls could not be audited, shares of the rest would describe a policy that
    looks less: then everything about looks is None, and `no_shares` says why. Everything else covers all
    trajectories with a scored answer.
    """

    n: int
    """Trajectories counted."""
    clusters: int
    """Independent questions that the intervals are based on (`vtune.metrics.intervals`)."""
    n_unscored: int
    """Trajectories left out because the answer could not be judged."""
    n_unaudited: int
    """Trajectories with calls and a scored answer whose looks could not be judged: left out of everything
    except the buckets, or the reason for `no_shares`."""
    no_shares: str | None
    """Why there are no shares of looks; None if there are."""
    accuracy: Estimate | None
    faithful_of_correct: Estimate | None
    """Algorithm 1: share of right answers with a call that shows a target."""
    faithful_by_chance: Estimate | None
    """The same share if their looks had been at other questions (`vtune.reward.chance`): a share close to it
    says nothing about looking. None if one of them has no chance level. Ours."""
    no_chance: str | None
    """Why right answers have no chance level; None if they do, or if nothing is said about looks."""
    faithful_of_all: Estimate | None
    """Table 5: right and faithful, as a share of all."""
    unfaithful_of_correct: Estimate | None
    unfaithful_of_all: Estimate | None
    small_of_correct: Estimate | None
    """Of the unfaithful: no call shows a target at the required size, but one shows all of it, smaller. A
    model that judges as CodeV's does may well see it there (§15): this is not a look beside the target."""
    small_of_all: Estimate | None
    no_tool_of_correct: Estimate | None
    no_tool_of_all: Estimate | None
    shown_of_all: Estimate | None
    """A call shows a target, whatever the answer; as a share of all."""
    tool_calls: Estimate | None
    """Mean number of calls; without an interval if all are equal."""
    red_flags: Estimate | None
    """Mean number of calls with a red flag."""
    buckets: tuple[Bucket, ...]
    """Over all with a scored answer: figure 8 does not need audited looks."""


def faithfulness(rows: Iterable[Row], *, seed: int, max_unaudited: float) -> Faithfulness:
    """Summarise audited trajectories.

    Args:
        rows: One per trajectory. Rows with an unscored answer are counted and left out.
        seed: Seed of the bootstrap; the same seed gives the same intervals.
        max_unaudited: Maximum share, in [0, 1], of trajectories with unscored looks among those with calls;
            above it there are no shares of looks, up to it these trajectories are left out.
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
    """Why right answers have no chance level; None if all have one."""
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

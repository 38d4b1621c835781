"""How often right answers rest on a look that shows what was asked (CodeV, algorithm 1, Table 5, fig. 8)."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
"""Bootstrap resamples, ours: they move the ends of an interval by far less than its width."""

BUCKETS = ("0", "1", "2", "3+")
"""Numbers of tool calls that are counted apart (figure 8)."""


class Row(Protocol):
    """What is known about one trajectory; `vtune.reward.audit` makes such rows."""

    @property
    def correct(self) -> bool | None:
        """Whether the answer is right; None = unscored."""
        ...

    @property
    def calls(self) -> int:
        """Number of tool calls."""
        ...

    @property
    def any_faithful(self) -> bool | None:
        """Whether a call shows a target; None = unscored."""
        ...

    @property
    def flagged(self) -> int:
        """Calls with a red flag."""
        ...


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share or a mean, with its 95 % bootstrap interval (percentiles over resampled trajectories)."""

    value: float
    low: float
    high: float


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
    """

    n: int
    """Trajectories counted."""
    n_unscored: int
    """Trajectories left out, because the answer or the looks could not be judged."""
    accuracy: Estimate | None
    faithful_of_correct: Estimate | None
    """Algorithm 1: of the right answers, those with a call that shows a target."""
    faithful_of_all: Estimate | None
    """Table 5: right and faithful, of all."""
    unfaithful_of_correct: Estimate | None
    unfaithful_of_all: Estimate | None
    no_tool_of_correct: Estimate | None
    no_tool_of_all: Estimate | None
    shown_of_all: Estimate | None
    """A call shows a target, whatever the answer, of all."""
    tool_calls: Estimate | None
    """Mean number of calls."""
    red_flags: Estimate | None
    """Mean number of calls that carry a red flag."""
    buckets: tuple[Bucket, ...]


def faithfulness(rows: Iterable[Row], *, seed: int) -> Faithfulness:
    """Summarise audited trajectories.

    Args:
        rows: One a trajectory. Rows with an unscored answer or unscored looks are counted and left out.
        seed: Of the bootstrap; the same seed gives the same intervals.
    """
    rows = list(rows)
    kinds = Counter(
        (row.correct, row.any_faithful, row.calls, row.flagged)
        for row in rows
        if row.correct is not None and row.any_faithful is not None
    )
    # Resampling trajectories is drawing how often each kind of them occurs: (1 + RESAMPLES, kinds).
    table = np.array(sorted(kinds), dtype=np.float64).reshape(-1, 4)
    counts = np.array([kinds[kind] for kind in sorted(kinds)], dtype=np.float64)
    n = int(counts.sum())
    weights = counts[np.newaxis]
    if n:
        draws = np.random.default_rng(seed).multinomial(n, counts / n, size=RESAMPLES)
        weights = np.vstack([weights, draws])

    correct, shown, calls, flagged = table.T
    everything = np.ones_like(correct)
    used = (calls > 0).astype(np.float64)
    faithful = correct * shown
    unfaithful = correct * used * (1 - shown)
    no_tool = correct * (1 - used)

    def of(part: NDArray[np.float64], whole: NDArray[np.float64]) -> Estimate | None:
        return _ratio(weights @ part, weights @ whole)

    buckets = []
    for position, name in enumerate(BUCKETS):
        inside = (np.minimum(calls, len(BUCKETS) - 1) == position).astype(np.float64)
        right = inside * correct
        buckets.append(
            Bucket(
                calls=name,
                share=of(inside, everything),
                correct_share=of(right, everything),
                accuracy=of(right, inside),
            )
        )
    return Faithfulness(
        n=n,
        n_unscored=len(rows) - n,
        accuracy=of(correct, everything),
        faithful_of_correct=of(faithful, correct),
        faithful_of_all=of(faithful, everything),
        unfaithful_of_correct=of(unfaithful, correct),
        unfaithful_of_all=of(unfaithful, everything),
        no_tool_of_correct=of(no_tool, correct),
        no_tool_of_all=of(no_tool, everything),
        shown_of_all=of(shown, everything),
        tool_calls=of(calls, everything),
        red_flags=of(flagged, everything),
        buckets=tuple(buckets),
    )


def _ratio(parts: NDArray[np.float64], wholes: NDArray[np.float64]) -> Estimate | None:
    """Quotients, the observed one first, then the resamples; those without a whole are left out."""
    if wholes[0] == 0:
        return None
    kept = wholes > 0
    ratios = parts[kept] / wholes[kept]
    low, high = np.percentile(ratios[1:], [2.5, 97.5]) if len(ratios) > 1 else (ratios[0], ratios[0])
    return Estimate(float(ratios[0]), float(low), float(high))

"""One audited trajectory as metrics see it, and shares and means of several with intervals."""

from collections.abc import Sequence
from typing import Protocol

from numpy.typing import ArrayLike

from vtune.metrics.intervals import Estimate, mean, share


class Clustered(Protocol):
    """What an interval needs from a row."""

    @property
    def cluster(self) -> str:
        """Rows with the same cluster are resampled together (`vtune.schema.clusters`)."""
        ...


class Audited(Clustered, Protocol):
    """What every metric of looks needs from a trajectory; `vtune.reward.audit` makes such rows."""

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
        """Whether any call shows a target; None = unscored."""
        ...


def too_few_audited(rows: Sequence[Audited], max_unaudited: float) -> bool:
    """Whether too few are audited: shares of looks would then describe a policy that looks less.

    Args:
        rows: Trajectories whose answer is scored.
        max_unaudited: Share, in [0, 1], of trajectories with calls whose looks may be unknown.
    """
    users = [row for row in rows if row.calls]
    return sum(row.any_faithful is None for row in users) > max_unaudited * len(users)


class Estimates:
    """Shares and means over rows, with intervals over their clusters.

    Args:
        rows: One per trajectory.
        seed: Seed of the bootstrap; the same seed gives the same intervals.
    """

    def __init__(self, rows: Sequence[Clustered], seed: int) -> None:
        self._clusters = [row.cluster for row in rows]
        self._seed = seed

    def share(self, parts: ArrayLike, wholes: ArrayLike | None = None) -> Estimate | None:
        """`parts` as a share of `wholes`, each of shape (rows,); without `wholes`, as a share of all rows."""
        return share(self._clusters, parts, wholes, seed=self._seed)

    def mean(self, values: ArrayLike) -> Estimate | None:
        """The mean of numbers of shape (rows,)."""
        return mean(self._clusters, values, seed=self._seed)

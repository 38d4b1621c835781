"""How far a judge of looks can be trusted, and how its errors affect the share that it reports."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vtune.metrics.agreement import Agreement, agreement
from vtune.metrics.audited import Estimates
from vtune.metrics.corrected import LEAST_J, Confusion, Corrected, corrected
from vtune.metrics.intervals import Estimate, effective
from vtune.metrics.resampling import totals

SIZES = (("under 0.1 %", 0.001), ("0.1 to 1 %", 0.01), ("1 to 10 %", 0.1))
"""Target sizes that are counted separately, with the exclusive upper bound as a share of the picture; ours:
V*'s targets take up 0.05 % on average, a sign of a lens puzzle 1.6 %."""
LARGE = "from 10 %"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A trajectory with calls: the judge's verdict and the truth."""

    cluster: str
    """Rows with the same cluster belong together (`vtune.schema.clusters`)."""
    correct: bool | None
    """Whether its answer is right; None = unscored."""
    target: float | None
    """Share of the picture that the largest target takes up; None if no box says it."""
    said: bool | None
    """Whether a call shows a target according to the judge; None if it could not tell."""
    truth: bool | None
    """Whether a call really does; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A judge compared with the truth, on trajectories with calls. None: nothing to divide by."""

    agreement: Agreement
    """Agreement of the truth (first) with the judge (second): accuracy (`agree`), kappa and the confusion."""
    sensitivity: Estimate | None
    """Of the trajectories that show a target, the share for which the judge says so."""
    specificity: Estimate | None
    """Of the trajectories that do not, the share for which the judge says so."""
    warning: str
    """Why its shares should not be quoted; empty if they can be."""
    by_size: dict[str, Agreement]
    """The same agreement by target size."""
    n: int
    """Number of judged right answers with calls whose share is corrected: those with unknown truth, or all if
    the truth of each is known."""
    corrected: Corrected | None
    """The share of faithful ones among these, as judged, and as a perfect judge would have found it."""


def calibration(rows: Iterable[Judged], *, seed: int) -> Calibration:
    """Compare a judge with the truth.

    Trajectories about one question carry less information than the same number of questions: counts are
    reduced to the number of independent ones with the same spread.

    Args:
        rows: Trajectories with calls.
        seed: Seed of the bootstrap.
    """
    rows = [row for row in rows if row.said is not None]
    known = [row for row in rows if row.truth is not None]
    yes, no = ([row for row in known if row.truth is so] for so in (True, False))
    asked = [row for row in rows if row.correct and row.truth is None] or [row for row in rows if row.correct]
    hits, hits_of = _independent(yes, True)
    rejections, rejections_of = _independent(no, False)
    said, of = _independent(asked, True)
    errs = Confusion(
        hits=hits, misses=hits_of - hits, false_alarms=rejections_of - rejections, rejections=rejections
    )
    found = corrected(said, of, errs)
    sizes = [size_of(row.target) for row in known]
    return Calibration(
        agreement=_agreement(known),
        sensitivity=Estimates(yes, seed).share([float(bool(row.said)) for row in yes]),
        specificity=Estimates(no, seed).share([float(not row.said) for row in no]),
        warning=_warning(found, len(yes), len(no)),
        by_size={
            size: _agreement([row for row, own in zip(known, sizes, strict=True) if own == size])
            for size in (*(name for name, _ in SIZES), LARGE)
            if size in sizes
        },
        n=len(asked),
        corrected=found,
    )


def majority(said: Iterable[bool | None]) -> bool | None:
    """What more than half of the judges that could tell say; None if there is a tie."""
    known = [one for one in said if one is not None]
    yes = sum(known)
    return None if 2 * yes == len(known) else 2 * yes > len(known)


def size_of(target: float | None) -> str:
    """The size class of a target."""
    if target is None:
        return "unknown"
    return next((name for name, most in SIZES if target < most), LARGE)


def _agreement(rows: Sequence[Judged]) -> Agreement:
    return agreement((row.truth, row.said) for row in rows)


def _warning(found: Corrected | None, yes: int, no: int) -> str:
    if found is None and yes and no:
        return ""  # there is no right answer with calls, hence no share
    if found is None:
        lacking = "to show the target" if not yes else "not to show it"
        return f"the judge is not calibrated: it judged no trajectory that is known {lacking}"
    if found.youden_low < LEAST_J:
        return (
            f"the judge can hardly tell looks apart: Youden's J is {found.youden:.2f}, possibly as low "
            f"as {found.youden_low:.2f}; do not quote its shares"
        )
    return ""


def _independent(rows: Sequence[Judged], says: bool) -> tuple[float, float]:
    """Number of rows for which the judge says this, and of all rows, as independent ones."""
    if not rows:
        return 0.0, 0.0
    said = np.array([row.said is says for row in rows], dtype=np.float64)
    table = totals([row.cluster for row in rows], said, np.ones_like(said))
    part = float(said.mean())
    spread = float(((table[:, 0] - part * table[:, 1]) ** 2).sum()) / len(rows) ** 2
    # Without a spread, the correlation within clusters is unknown: count each cluster as one trial.
    count = effective(table) if spread == 0 or len(table) < 2 else part * (1 - part) / spread
    count = min(float(len(rows)), max(1.0, count))
    return part * count, count

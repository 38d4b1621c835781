"""Audited trajectories as candidates for counterfactual re-runs: their place, and the judge's verdict."""

from collections.abc import Sequence
from dataclasses import dataclass

from vtune.judge.pictures import picture_size
from vtune.metrics.counterfactual import Answered
from vtune.reward.audit import AuditRow
from vtune.runs.audit.stored_audit import Place, StoredAudit
from vtune.schema.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trajectory for a question that needs a look, before re-runs."""

    place: Place
    answered: Answered

    @property
    def asked(self) -> bool:
        """Whether to regenerate it: it is right and saw a picture from a call."""
        return bool(self.answered.correct) and self.answered.looked


class RerunCandidates:
    """Collects candidates while trajectories are audited a portion at a time."""

    def __init__(self) -> None:
        self.rows: list[Candidate] = []

    def take(self, portion: Sequence[StoredAudit]) -> None:
        """Take the next trajectories."""
        self.rows += [
            Candidate(one.place, _answered(one.trajectory, one.audit))
            for one in portion
            if one.audit is not None
        ]


def _answered(trajectory: Trajectory, row: AuditRow) -> Answered:
    sizes = [picture_size(picture) for picture in trajectory.images if picture.origin == "input"]
    return Answered(
        cluster=row.cluster,
        source=row.source,
        pixels=max((width * height for width, height in sizes), default=0),
        calls=row.calls,
        correct=row.correct,
        faithful=row.any_faithful,
        looked=any(call.images for call in trajectory.calls),
        reruns={},
    )

"""Audited trajectories as counterfactual re-runs need them: where each stands, and what the judge said."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vtune.judge.pictures import picture_size
from vtune.metrics.counterfactual import Answered
from vtune.reward.audit import AuditRow
from vtune.reward.evidence import needs_look
from vtune.reward.recipe import EvidenceLevels
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

Place = tuple[Path, int]
"""A file of trajectories, and a row of it."""


@dataclass(frozen=True, slots=True)
class Looked:
    """A trajectory about a question that needs a look, before anything is drawn again."""

    place: Place
    answered: Answered

    @property
    def asked(self) -> bool:
        """Whether it is to be drawn again: it is right, and saw a picture of a call."""
        return bool(self.answered.correct) and self.answered.looked


class Looking:
    """Collects them while trajectories are audited a portion at a time."""

    def __init__(self) -> None:
        self.rows: list[Looked] = []
        self._next: Counter[Path] = Counter()

    def take(
        self,
        file: Path,
        samples: Mapping[str, Sample],
        portion: Sequence[Trajectory],
        rows: Sequence[AuditRow],
        levels: EvidenceLevels,
    ) -> None:
        """Take in the next trajectories of a file, with the audit of those that need a look."""
        audits = iter(rows)
        for number, trajectory in enumerate(portion, start=self._next[file]):
            if needs_look(samples[trajectory.sample_id], levels):
                self.rows.append(Looked((file, number), _answered(trajectory, next(audits))))
        self._next[file] += len(portion)


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

"""A stored trajectory with its audit and its place in a file, for comparison with labels and re-runs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vtune.environments import name_of
from vtune.reward.audit import AuditRow
from vtune.reward.evidence import needs_look
from vtune.reward.recipe import EvidenceLevels
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

Place = tuple[Path, int]
"""A trajectory file, and a row in it."""


@dataclass(frozen=True, slots=True)
class StoredAudit:
    """One trajectory of a file."""

    place: Place
    sample: Sample
    trajectory: Trajectory
    """The scored trajectory."""
    audit: AuditRow | None
    """None if its question needs no look."""


class WithoutLook:
    """Counts trajectories whose questions need no look, which the audit's numbers do not include."""

    def __init__(self) -> None:
        self.by_source: Counter[str] = Counter()
        self.by_environment: Counter[str] = Counter()

    def take(self, portion: Sequence[StoredAudit]) -> None:
        """Take the next trajectories."""
        left_out = [one.sample for one in portion if one.audit is None]
        self.by_source.update(sample.source for sample in left_out)
        self.by_environment.update(map(name_of, left_out))


def stored_audits(
    first: Place,
    portion: Sequence[Trajectory],
    rows: Sequence[AuditRow],
    samples: Mapping[str, Sample],
    levels: EvidenceLevels,
) -> Iterator[StoredAudit]:
    """Consecutive trajectories of a file, each with its audit.

    Args:
        first: Place of the first one.
        portion: The scored trajectories.
        rows: The audit of those that need a look, in order.
        samples: Id -> sample.
        levels: The reward's levels, which decide which questions need a look.
    """
    audits = iter(rows)
    file, start = first
    for number, trajectory in enumerate(portion, start=start):
        sample = samples[trajectory.sample_id]
        row = next(audits) if needs_look(sample, levels) else None
        yield StoredAudit((file, number), sample, trajectory, row)

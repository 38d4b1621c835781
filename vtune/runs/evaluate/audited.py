"""What an evaluation's results say about looks: right answers that rest on one, and habits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from vtune.metrics.faithfulness import faithfulness
from vtune.metrics.habits import habits
from vtune.reward.audit import AuditRow, audit, judges_of, with_chance
from vtune.reward.evidence import Judges
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.evaluate.windows import portions
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

AUDITED_ROWS, AUDITED_BYTES = 256, 128 * 2**20
"""Limits on trajectories, and on bytes of their pictures, in memory for an audit; ours."""


def audit_portions(trajectories: Iterable[Trajectory]) -> Iterable[list[Trajectory]]:
    """Trajectories in groups, of which only one is in memory at a time."""
    return portions(trajectories, rows=AUDITED_ROWS, size=AUDITED_BYTES)


async def audited(
    trajectories: Iterable[Trajectory], samples: Mapping[str, Sample], judges: Judges
) -> list[AuditRow]:
    """The audit of scored trajectories, in order; `samples` by id."""
    rows: list[AuditRow] = []
    for group in audit_portions(trajectories):
        rows += await audit([samples[t.sample_id] for t in group], group, judges)
    return rows


def audit_facts(rows: Sequence[AuditRow], suite: EvalSuite) -> dict[str, Any]:
    """The fields of `results.json` that an audit fills."""
    limit = suite.reward.max_unscored
    rows = with_chance(rows, suite.reward.evidence)
    return {
        "faithfulness": asdict(faithfulness(rows, seed=suite.seed, max_unaudited=limit)),
        "habits": asdict(habits(rows, seed=suite.seed, max_unaudited=limit)),
        "judged_by": judges_of(rows),
        "unaudited": sum(row.by is None for row in rows),
    }

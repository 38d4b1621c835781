"""An audit's verdicts, one line per trajectory, kept beside the run to spot-check and publish."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from vtune.files.writing import write_atomically
from vtune.reward.audit import AuditRow
from vtune.schema.audit import VERDICTS

SAID = ("calls", "first", "helpful", "flagged", "small", "by", "judged", "why")
"""Fields of an `AuditRow` that are written besides the answer and whether a call shows the target."""


def write_verdicts(
    folder: Path,
    base: Mapping[str, Sequence[AuditRow]],
    ways: Mapping[str, Mapping[str, Sequence[AuditRow]]],
) -> None:
    """Write an audit's verdicts, replacing those of an earlier audit.

    Args:
        folder: Folder of the run or evaluation.
        base: The rows that numbers are based on: name of a trajectory file -> its rows.
        ways: The same for each judge, by name; if there are several, `faithful_by` has their verdicts, and
            `why_by` the reasons of those without one.

    Raises:
        RecipeError: If the file cannot be written.
    """
    lines = []
    for file, rows in base.items():
        for number, row in enumerate(rows):
            of_ways = {name: of_way[file][number] for name, of_way in ways.items()}
            said = {name: one.any_faithful for name, one in of_ways.items()}
            unknown = {name: one.why for name, one in of_ways.items() if one.any_faithful is None}
            line = {
                "file": file,
                "sample_id": row.sample_id,
                "rollout": row.rollout,
                "source": row.source,
                "correct": row.correct,
                "faithful": row.any_faithful,
                **{name: getattr(row, name) for name in SAID},
                **({"faithful_by": said, "why_by": unknown} if len(said) > 1 else {}),
            }
            lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    write_atomically(folder / VERDICTS, "".join(lines), option=None)

"""What changed in runs, shown before any table: one line per change, the worst first."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from vtune.report.numbers import number

MOST = 8
"""Maximum number of lines per run."""
BAD = ("worse", "fell back")


def render_changes(runs: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """Lines about the `changes` of each run (`vtune.metrics.changes.telling`)."""
    for run in runs:
        found = run.get("changes", ())
        name = f"{run['name']}: " if len(runs) > 1 else ""
        if not found:
            yield Text(f"{name}no number that matters has clearly changed")
        for one in found[:MOST]:
            yield Text(f"{name}{_line(one)}", style="red" if one["verdict"] in BAD else "")
        if len(found) > MOST:
            yield Text(f"{name}{len(found) - MOST} other changes: see the tables")


def _line(one: Mapping[str, Any]) -> str:
    change = (
        f"{one['verdict']}: {one['name']} of {one['source']} {number(one['first'])} → {number(one['last'])}"
    )
    if one["verdict"] == "fell back":
        return f"{change}, after {number(one['best'])} until step {one['best_step']}"
    return change

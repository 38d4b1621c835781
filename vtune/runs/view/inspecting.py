"""`vtune data inspect` for trajectories and traces: what a file of them holds, and its first rows."""

from collections import Counter
from pathlib import Path
from typing import Any

from vtune.errors import DataError
from vtune.files.writing import check_file_output
from vtune.report.samples import Problem
from vtune.reward.recipe import RIGHT
from vtune.runs.data.validating import problem_of
from vtune.runs.view.page import write_page
from vtune.schema.parquet import columns, scan_trajectories
from vtune.schema.trajectory import Trajectory
from vtune.view.document import document_of
from vtune.view.place import Place

BY = ("source", "outcome", "stop", "tool", "call")
"""What rows and their calls are grouped by."""


def holds_trajectories(path: Path) -> bool:
    """Whether a file holds trajectories or traces, judging by its columns.

    Raises:
        DataError: If it cannot be read.
    """
    return path.is_file() and {"sample_id", "messages"} <= columns(path).keys()


def inspect_trajectories(path: Path, rows: int, *, html: Path | None = None) -> dict[str, Any]:
    """The content of a file of trajectories or traces: columns, counts, its first good rows, and bad ones.

    Args:
        path: The file.
        rows: How many rows to show.
        html: Also write a page to this file, with as many rows, cycling through sources and outcomes.

    Returns:
        `file`, `kind` (`traces` if no row has tokens or a reward), `rows`, `columns`, `by_source`,
        `by_outcome` (right, wrong, unscored), `by_stop`, `by_tool` and `by_call` (calls, by how they ended),
        `with_calls`, `with_pictures`, `problems`, and `examples`, see `vtune.view.document.document_of`.

    Raises:
        DataError: If the file itself cannot be read.
        RecipeError: If the page cannot be written.
    """
    if html is not None:
        check_file_output(html, inputs=[path], option="--html")
    place = Place(path, path.stem, "trajectories")
    examples: list[dict[str, Any]] = []
    problems: list[Problem] = []
    counts: dict[str, Counter[str]] = {name: Counter() for name in BY}
    total: Counter[str] = Counter()
    for number, entry in enumerate(scan_trajectories(path)):
        total["rows"] += 1
        if isinstance(entry, DataError):
            problems.append(problem_of(path, number, entry))
            continue
        _count(entry, counts, total)
        if len(examples) < rows:
            examples.append(document_of(place, path, number, entry, None))
    result = {
        "file": str(path),
        "kind": "trajectories" if total["drawn"] else "traces",
        "rows": total["rows"],
        "columns": columns(path),
        **{f"by_{name}": dict(counter) for name, counter in counts.items()},
        "with_calls": total["with_calls"],
        "with_pictures": total["with_pictures"],
        "problems": problems,
        "examples": examples,
    }
    if html is not None:
        result["page"] = write_page([path], html, trajectories=rows)["page"]
    return result


def _count(one: Trajectory, counts: dict[str, Counter[str]], total: Counter[str]) -> None:
    counts["source"][one.source] += 1
    counts["stop"][one.stop_reason] += 1
    if one.reward is not None:
        accuracy = one.reward.accuracy
        counts["outcome"]["unscored" if accuracy is None else "right" if accuracy >= RIGHT else "wrong"] += 1
    for call in one.calls:
        counts["tool"][call.tool] += 1
        counts["call"][call.status] += 1
    total["drawn"] += bool(one.token_ids) or one.reward is not None
    total["with_calls"] += bool(one.calls)
    total["with_pictures"] += bool(one.images)

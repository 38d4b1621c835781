"""What an index shows beside its list: which tool fails, what is flagged, which samples are always wrong."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from vtune.view.facts import EMPTY
from vtune.view.query import parse_query, select

LISTED = 12
"""Samples to list (ours)."""
OK = "ok"
QUERIES = {
    "right, though no call showed a target": "right:yes faithful:no",
    "wrong, though a call showed one": "right:no faithful:yes",
    "with a red flag": "-flag:none",
    "unscored": "right:none",
}
"""What most people look for -> the query for it."""


def calls_by_tool(table: pa.Table) -> dict[str, Any] | None:
    """How the calls of each tool ended, most errors first, and which found nothing; None without calls.

    Args:
        table: The table of an index, with the columns of `vtune.view.facts.FACTS`.

    Returns:
        `title`, `note`, `head` and `rows` of plain texts, like the tables of a page.
    """
    counted: Counter[tuple[str, str]] = Counter()
    tools, ends = Counter[str](), Counter[str]()
    for one in pc.value_counts(table["outcomes"]).to_pylist():
        for outcome in (one["values"] or "").split():
            tool, _, status = outcome.rpartition(":")
            counted[tool, status] += one["counts"]
            tools[tool] += one["counts"] if status != EMPTY else 0
            ends[status] += one["counts"]
    if not tools:
        return None
    ended = [status for status, _ in ends.most_common() if status != OK]

    def not_ok(tool: str) -> float:
        return 1 - counted[tool, OK] / tools[tool]

    rows = [
        [tool, str(tools[tool]), *(_share(counted[tool, status], tools[tool]) for status in (OK, *ended))]
        for tool in sorted(tools, key=lambda tool: (-not_ok(tool), tool))
    ]
    note = "of all trajectories that are kept; `call:TOOL:STATUS` finds them in the list"
    return {"title": "calls by tool", "note": note, "head": ["tool", "calls", OK, *ended], "rows": rows}


def flags_by_step(table: pa.Table) -> dict[str, Any] | None:
    """How many trajectories of each kept step have each red flag, the most common at the first step first.

    Args:
        table: The table of an index.

    Returns:
        As `calls_by_tool`, with columns for the first and the last kept step if there are several; None if
        nothing is flagged.
    """
    steps = sorted(pc.unique(table["step"]).drop_null().to_pylist())
    ends = [steps[0], steps[-1]] if len(steps) > 1 else []
    parts = {f"step {step}": table.filter(pc.equal(table["step"], step)) for step in ends} | {"all": table}
    counted = {name: _flags(part) for name, part in parts.items()}
    if not counted["all"]:
        return None

    def seldom(flag: str) -> list[int]:
        return [-count[flag] for count in counted.values()]

    rows = [
        [flag, *(_share(count[flag], parts[name].num_rows) for name, count in counted.items())]
        for flag in sorted(counted["all"], key=lambda flag: (seldom(flag), flag))
    ]
    note = "trajectories with a call that has it, of those that are kept; `flag:NAME` finds them in the list"
    return {"title": "red flags", "note": note, "head": ["flag", *parts], "rows": rows}


def by_query(table: pa.Table) -> list[dict[str, Any]]:
    """`name`, `query` and the number `found` for each of `QUERIES`."""
    return [
        {"name": name, "query": query, "found": len(select(table, parse_query(query), {}))}
        for name, query in QUERIES.items()
    ]


def by_sample(table: pa.Table) -> dict[str, Any] | None:
    """How many samples are always, sometimes and never right, over all scored trajectories.

    Args:
        table: The table of an index.

    Returns:
        `samples`, `always`, `sometimes`, `never`, and `rows`: the samples that are never right, those
        generated most often first, with `sample`, `source`, `scored`; None if no sample was scored more than
        once.
    """
    known = table.select(["sample", "source", "right"]).filter(pc.is_valid(table["right"]))
    right = pc.cast(known["right"], pa.int64())
    known = known.set_column(2, "right", right)
    found = known.group_by(["sample", "source"]).aggregate([("right", "sum"), ("right", "count")]).to_pylist()
    several = [one for one in found if one["right_count"] > 1 and one["sample"]]
    if not several:
        return None
    never = [one for one in several if not one["right_sum"]]
    always = sum(one["right_sum"] == one["right_count"] for one in several)
    never.sort(key=lambda one: (-one["right_count"], one["sample"]))
    return {
        "samples": len(several),
        "always": always,
        "sometimes": len(several) - always - len(never),
        "never": len(never),
        "rows": [
            {"sample": one["sample"], "source": one["source"], "scored": one["right_count"]}
            for one in never[:LISTED]
        ],
    }


def _flags(table: pa.Table) -> Counter[str]:
    counted: Counter[str] = Counter()
    for one in pc.value_counts(table["flags"]).to_pylist():
        for flag in (one["values"] or "").split():
            counted[flag] += one["counts"]
    return counted


def _share(count: int, of: int) -> str:
    return f"{count} ({100 * count / of:.1f} %)" if count else "0"

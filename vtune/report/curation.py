"""What curation kept, as tables (the funnel is laid out like V-Triune's Table 4)."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.report.numbers import GAP, number, percent
from vtune.report.values import render_values


def render_curation(result: Mapping[str, Any]) -> RenderableType:
    """The funnel by source, the mix by ability and `data_source`, and notes for the user."""
    parts: list[RenderableType] = [_funnel(result)]
    if result["records"] == "samples":
        parts.append(_mix("ability", result["abilities"]))
    if not result["data_sources"].keys() <= result["funnel"].keys():
        parts.append(_mix("data_source", result["data_sources"]))
    for here, said in ((True, "kept apart from"), (False, "not here, not checked")):
        if names := [name for name, there in result["benchmarks"].items() if there is here]:
            parts.append(Text(f"benchmarks {said}: {', '.join(names)}"))
    for name, rows in result["unscored"].items():
        parts.append(Text(f"{name}: {rows} rows could not be judged; the next run asks again"))
    if result["waiting_for_review"]:
        parts.append(
            Text(
                f"{result['waiting_for_review']} samples wait for a person: fill in `decision` in "
                "queue.jsonl and start the same command again"
            )
        )
    parts += [Text(f"warning: {warning}") for warning in result["warnings"]]
    parts.append(Text(f"{result['out']}: {', '.join(result['files'])}"))
    return Group(*parts)


def render_plan(result: Mapping[str, Any]) -> RenderableType:
    """The result of a dry run."""
    return render_values(result)


def _funnel(result: Mapping[str, Any]) -> Table:
    """One row per source, with a line for every filter; for `valid` and `mix` only if they dropped rows."""
    published = result["published"]
    table = Table(title="funnel", title_justify="left")
    for name in ("source", "before", "sampled", "dropped, and left afterwards", "after"):
        table.add_column(name, justify="left" if name.startswith(("source", "dropped")) else "right")
    if published:
        table.add_column("published", justify="right")
    for source, row in result["funnel"].items():
        steps = [name for name in row if name not in ("before", "after")]
        lost = [
            f"{name} {number(row[before] - row[name])} → {number(row[name])}"
            for before, name in pairwise(steps)
            if row[before] != row[name] or name not in ("valid", "mix")
        ]
        cells = [number(row["before"]), number(row["sampled"]), "\n".join(lost) or GAP, number(row["after"])]
        if published:
            pair = published.get(source)
            cells.append(GAP if pair is None else f"{number(pair[0])} → {number(pair[1])}")
        table.add_row(source, *cells, end_section=True)
    return table


def _mix(by: str, shares: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table(by, "rows", "share", title="mix", title_justify="left")
    for name, row in shares.items():
        table.add_row(name or GAP, number(row["rows"]), percent(row["share"]))
    return table

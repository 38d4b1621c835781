"""The list of suites, and groups of suites after an evaluation."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.report.values import cell


def render_suites(listed: Mapping[str, Any]) -> RenderableType:
    """The suites in a table, then how to get missing ones, why licences are unknown, and the groups."""
    table = Table()
    for column in ("suite", "rows", "licence", "here", "data", "agent", "protocols, the default first"):
        table.add_column(column, overflow="fold")
    for name, suite in listed["suites"].items():
        others = [one for one in suite["protocols"] if one != suite["protocol"]]
        table.add_row(
            name,
            "" if suite["rows"] is None else str(suite["rows"]),
            suite["licence"] or "none known",
            "yes" if suite["here"] else "no",
            ", ".join(suite["data"]),
            suite["agent"],
            ", ".join([suite["protocol"], *others]),
        )
    get = [Text(f"{name}: {suite['get']}") for name, suite in listed["suites"].items() if not suite["here"]]
    groups = [
        Text(f"{name}: {', '.join([*group['members'], *group['without_suite']])}")
        for name, group in listed["groups"].items()
    ]
    licences = [
        Text(f"{name}: {suite['licence_why']}")
        for name, suite in listed["suites"].items()
        if suite["licence"] is None and suite["licence_why"]
    ]
    return Group(
        table,
        Text("\nnot here"),
        *get,
        Text("\nno licence known"),
        *licences,
        Text("\ngroups"),
        *groups,
    )


def render_groups(groups: Mapping[str, Any]) -> RenderableType:
    """A table for each group: one row per member, including missing ones, and the average."""
    return Group(*(_group(name, group) for name, group in groups.items()))


def _group(name: str, group: Mapping[str, Any]) -> Table:
    table = Table(title=name, title_justify="left")
    table.add_column("suite")
    table.add_column("score", justify="right")
    for member, score in group["scores"].items():
        table.add_row(member, cell(score))
    for member in group["missing"]:
        table.add_row(member, f"missing: {group['reasons'][member]}")
    table.add_row(
        "average", f"none: {group['no_average']}" if group["no_average"] else cell(group["average"])
    )
    return table

"""Credit misassignment and credit transfer as tables (Dong et al., figures 2 and 8-10)."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.report.numbers import number, percent, sparkline

CURVE_WIDTH = 24

_SHOWN = {"support": "support", "alpha": "α", "delta": "F, all calls", "delta_gated": "Δ: F, gated calls"}
"""Headings of the rows of figure 10; F, before β, in units of the normalised advantage."""


def render_credit(report: Mapping[str, Any]) -> RenderableType:
    """The result of `vtune.runs.report.credit.run_credit` as tables."""
    return Group(*(part for run in report["runs"] for part in _run(run)))


def _run(run: Mapping[str, Any]) -> list[RenderableType]:
    did = (
        "credit was transferred"
        if run["transferred"]
        else "no credit was transferred; by the paper's constants"
    )
    head = (
        f"{run['name']}  ({run['path']}, {did}, beta {number(run['credit']['beta'])})\n"
        f"{run['steps']} steps, {run['failing_trajectories']} failing trajectories, "
        f"{run['failing_calls']} calls in them"
    )
    parts: list[RenderableType] = [Text(head)]
    parts.append(
        _grid(
            "correctable: a success made a similar call",
            ("similarity from", "failing trajectories", "their calls"),
            [
                (number(row["theta"]), percent(row["trajectories"]), percent(row["calls"]))
                for row in run["correctable"]
            ],
        )
    )
    parts.append(
        _grid(
            "support by similarity",
            ("similarity", "calls", "mean support"),
            [
                (f"{number(row['low'])} to {number(row['high'])}", str(row["calls"]), percent(row["support"]))
                for row in run["support_by_similarity"]
            ],
        )
    )
    spreads = ("support", "alpha", "delta", "delta_gated")
    parts.append(
        _grid(
            "tool types: median [quartiles]",
            ("tool type", "calls", "gated", *(_SHOWN[of] for of in spreads)),
            [
                (name, str(tool["calls"]), str(tool["gated"]), *(_spread(tool[of]) for of in spreads))
                for name, tool in run["tools"].items()
            ],
        )
    )
    parts.append(_grid("over training", ("number", "first", "last", "curve"), _curves(run)))
    if cost := run["cost"]:
        parts.append(
            Text(
                f"both phases: {1000 * cost['seconds_credit']:.1f} ms a step of {number(cost['seconds'])} s, "
                f"{100 * cost['share']:.2f} % ({cost['measured']})"
            )
        )
    return parts


def _grid(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _spread(spread: Mapping[str, float] | None) -> str:
    if spread is None:
        return "no call passes"
    return f"{number(spread['median'])} [{number(spread['low'])}, {number(spread['high'])}]"


def _curves(run: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """First and last value and the curve of each number; steps where it was not measured are gaps."""
    curves: dict[str, list[float]] = {}
    for row in run["training"]:
        for name, value in row.items():
            if name not in ("step", "delta_gated_why") and value is not None:
                curves.setdefault(name, []).append(value)
    for row in run["training_tools"]:
        for of in _SHOWN:
            if row[of] is not None:
                curves.setdefault(f"{row['tool']} {of}, median", []).append(row[of]["median"])
    return [
        (name, number(values[0]), number(values[-1]), sparkline(values, CURVE_WIDTH))
        for name, values in curves.items()
    ]

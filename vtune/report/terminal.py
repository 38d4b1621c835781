"""Runs side by side: one table per source, one row per number, one curve per run."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.metrics.changes import TELLING
from vtune.metrics.tightening import WINDOW
from vtune.report.audited import render_audits
from vtune.report.changes import render_changes
from vtune.report.evaluation import render_evaluations
from vtune.report.foreign import foreign
from vtune.report.numbers import GAP, number, sparkline
from vtune.report.sweep import render_sweeps
from vtune.report.values import uses_lines
from vtune.schema.source_names import ALL

CURVE_WIDTH = 16
LONE_CURVE_WIDTH = 40
"""For a single run: a fall of a few steps should be visible."""
FEW = 5
"""Columns in the table by source."""

ORDER = (
    "score",
    "faithful_of_correct",
    "faithful_by_chance",
    "faithful_of_all",
    "reward",
    "reward_accuracy",
    "reward_format",
    "reward_tool",
    "reward_consistency",
    "accuracy",
    "tool_calls",
    "no_tool",
    "evidence_rate",
    "red_flags",
    "unscored",
    "iou",
    "iou@50",
    "iou@75",
    "iou@95",
    "iou@99",
    "ap",
    "iou_threshold",
    "response_tokens",
    "truncated",
    "reflection_ratio",
    "reflection_accuracy",
    "leaked_placeholders",
    "loss",
    "entropy",
    "kl",
    "clip_share",
    "grad_norm",
    "tokens_per_second",
)
"""Numbers that come first, in this order; the others follow in the order in which the run wrote them."""


def render_report(report: Mapping[str, Any], *, everything: bool = False) -> RenderableType:
    """A result of `vtune.runs.report.document.run_report` as tables.

    Args:
        report: The result.
        everything: Show every number of every source; by default only what changed and the numbers that
            matter.
    """
    runs: Sequence[Mapping[str, Any]] = report["runs"]
    sources = dict.fromkeys(source for run in runs for source in run["sources"])
    parts: list[RenderableType] = [Text(_head(run)) for run in runs]
    if everything:
        parts += [_table(source, runs) for source in sources]
    elif sources:
        parts += [
            *render_changes(runs),
            _table(ALL if ALL in sources else next(iter(sources)), runs, TELLING),
        ]
        parts += [one for one in (_by_source(runs),) if one is not None]
    tightened = [run for run in runs if any(one["sources"] for one in run.get("tightenings") or ())]
    parts += [_tightenings(run) for run in tightened]
    parts += [_replies(one) for one in (*runs, *report.get("evaluations", ())) if "replies" in one]
    parts += [render_evaluations(report.get("evaluations", ()), everything=everything)]
    parts += render_audits((*runs, *report.get("evaluations", ())))
    parts += [render_sweeps(report.get("sweeps", ()), everything=everything)]
    parts += [Text(f"not finished, and left out: {path}") for path in report.get("unfinished", ())]
    parts += [Text(f"left out: {path}: {why}") for path, why in report.get("unreadable", {}).items()]
    left_out = not everything and (sources or report.get("evaluations"))
    return Group(*parts, *([Text("--all shows every number of every source")] if left_out else []))


def _head(run: Mapping[str, Any]) -> str:
    last = "no step yet" if run["last_step"] is None else f"last step {run['last_step']}"
    return f"{run['name']}  ({run['path']}, {last}){uses_lines(run)}"


def _by_source(runs: Sequence[Mapping[str, Any]]) -> Table | None:
    """First and last values of the most important numbers, per run and source; None for a single source."""
    rows = [(run, source) for run in runs for source in run["sources"] if source != ALL]
    if len(rows) <= len(runs):
        return None
    shown = [name for name in TELLING if any(name in run["sources"][source] for run, source in rows)][:FEW]
    title = "by source: first → last step that had rows of it"
    table = Table(title=title, title_justify="left")
    for column in (*(["run"] if len(runs) > 1 else []), "source"):
        table.add_column(column)
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for run, source in rows:
        curves = run["sources"][source]
        cells = [_first_to_last(curves[name]) if name in curves else GAP for name in shown]
        table.add_row(*([run["name"]] if len(runs) > 1 else []), source, *cells)
    return table


def _first_to_last(curve: Mapping[str, Any]) -> str:
    return f"{number(curve['first'])} → {number(curve['last'])}"


def _table(source: str, runs: Sequence[Mapping[str, Any]], only: Collection[str] = ()) -> Table:
    table = Table(title=f"source: {source}", title_justify="left")
    table.add_column("number", no_wrap=True)
    for run in runs:
        prefix = f"{run['name']}\n" if len(runs) > 1 else ""
        for column in ("first", "last", "best"):
            table.add_column(f"{prefix}{column}", justify="right", no_wrap=True)
            prefix = "\n" if len(runs) > 1 else ""
        table.add_column(f"{prefix}curve", no_wrap=True)
    curves = [run["sources"].get(source, {}) for run in runs]
    width = CURVE_WIDTH if len(runs) > 1 else LONE_CURVE_WIDTH
    for name in _in_order(dict.fromkeys(name for of_run in curves for name in of_run)):
        if only and name not in only:
            continue
        cells = [cell for of_run in curves for cell in _cells(of_run.get(name), width)]
        table.add_row(name, *cells)
    return table


def _tightenings(run: Mapping[str, Any]) -> Table:
    """The fall of the reward at each tightening, and where it ended."""
    title = (
        f"{run['name']}: accuracy part of the reward where the IoU threshold rises (means of {WINDOW} steps)"
    )
    table = Table(title=title, title_justify="left")
    for column in ("step", "threshold", "source", "before", "after", "end of stage"):
        table.add_column(column, justify="left" if column == "source" else "right", no_wrap=True)
    for one in run["tightenings"]:
        for source, values in one["sources"].items():
            means = (number(values[name]) for name in ("before", "after", "end"))
            table.add_row(str(one["step"]), f"{number(one['old'])} → {number(one['new'])}", source, *means)
    return table


def _replies(run: Mapping[str, Any]) -> RenderableType:
    """Replies in full, as the policy wrote them, or a note that there are none."""
    shown = run["replies"]
    if not shown:
        return Text(f"{run['name']}: no replies are kept; `vtune rl` and `vtune eval` keep some")
    step = f" of step {shown[0]['step']}" if "step" in shown[0] else ""
    title = f"{run['name']}: replies{step}, from the worst to the best of each source"
    table = Table(title=title, title_justify="left", show_lines=True)
    for column in ("source", "reward", "reply", "why"):
        table.add_column(column, overflow="fold", justify="right" if column == "reward" else "left")
    for one in shown:
        reward = GAP if one["reward"] is None else number(one["reward"])
        written = (foreign(one[key]) for key in ("reply", "why"))
        table.add_row(one["source"], reward, *written)
    return table


def _cells(curve: Mapping[str, Any] | None, width: int) -> tuple[str, str, str, str]:
    if curve is None:
        return GAP, GAP, GAP, ""
    best = "" if curve["best"] is None else number(curve["best"])
    return number(curve["first"]), number(curve["last"]), best, sparkline(curve["values"], width)


def _in_order(names: Mapping[str, None]) -> list[str]:
    return [name for name in ORDER if name in names] + [name for name in names if name not in ORDER]

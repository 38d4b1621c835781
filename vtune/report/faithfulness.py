"""Faithfulness as one table: in a terminal, as CSV, or as LaTeX for a paper."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.report.calibration import calibration_notes, calibration_table
from vtune.report.counterfactual import render_counterfactual
from vtune.report.numbers import GAP, number
from vtune.report.tabular import LOOKS, Column, Numbers, as_csv, as_latex, scaled
from vtune.report.values import cell, render_values

Result = Mapping[str, Any]
"""The result of `vtune.runs.audit.faithfulness.run_faithfulness`."""

_STEP = re.compile(r"step-(\d+)\.parquet$")

ENDS = 2
"""Number of a training run's files that are shown by default: the first and the last."""


def render_faithfulness(result: Result, *, everything: bool = False) -> RenderableType:
    """The verdict, one table, and notes on it.

    Args:
        result: Result of an audit.
        everything: Also a row for every file, accuracy by number of calls, and the table of calls.
    """
    table = looks_table(f"{result['path']} (in percent [95 % interval])", _rows(result, everything))
    parts: list[RenderableType] = [Text(verdict(result)), table, *map(Text, _notes(result))]
    if everything:
        parts.append(render_values({"by number of calls": result["all"]["buckets"]}))
        parts.append(calls_table(result["calls"]))
    elif len(result["files"]) > ENDS:
        parts.append(Text(f"--all shows each of {len(result['files'])} files"))
    if "judges" in result:
        parts.append(calibration_table(result["judges"]))
        parts += map(Text, calibration_notes(result["judges"]))
    if "counterfactual" in result:
        parts.append(render_counterfactual(result["counterfactual"]))
    return Group(*parts)


def kept_rows(audit: Result) -> Iterator[tuple[str, Numbers]]:
    """The rows of a stored audit: one for all, one for each source, and one by the model."""
    return _rows({**audit, "files": {}, "counterfactual": {"exchanges": {}}}, everything=False)


def looks_table(title: str, rows: Iterable[tuple[str, Numbers]]) -> Table:
    """A row for each name, with its numbers (`vtune.metrics.faithfulness`)."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column("n", justify="right")
    for column in LOOKS:
        table.add_column(column.title.replace(", ", ",\n"), justify="right", vertical="bottom", no_wrap=True)
    for name, numbers in rows:
        table.add_row(name, cell(numbers["n"]), *(shown(numbers.get(one.name), one) for one in LOOKS))
    return table


def verdict(result: Result) -> str:
    """What the audit found, as a sentence."""
    found = result["all"]["faithful_of_correct"]
    if found is None:
        return result["all"]["no_shares"] or "no answer is right, so none can be faithful"
    least, most = (number(round(100 * found[end], 1)) for end in ("low", "high"))
    by_chance = result["all"].get("faithful_by_chance")  # older audits have none
    chance = "" if by_chance is None else f"; by chance it would be {100 * by_chance['value']:.1f} %"
    return (
        f"{100 * found['value']:.1f} % of the right answers rest on a call that shows what was asked for "
        f"(95 % interval: {least} to {most}){chance}"
    )


def faithfulness_csv(result: Result) -> str:
    """Every row, including files, see `vtune.report.tabular.as_csv`."""
    return as_csv(_rows(result, everything=True), _columns(result), "rows")


def faithfulness_latex(result: Result) -> str:
    """The terminal's table as a `tabular`, with notes as comments."""
    return as_latex(_rows(result, everything=False), _columns(result), (verdict(result), *_notes(result)))


def _columns(result: Result) -> tuple[Column, ...]:
    """Columns of looks and, after re-runs of right answers, of the share that depends on what was shown."""
    names = result["counterfactual"]["exchanges"] if "counterfactual" in result else ()
    return (*LOOKS, *(Column(f"dependent_{name}", f"dependent ({name}), of the correct") for name in names))


CALLS = (
    ("helpful_of_calls", "helpful,\nof calls"),
    ("helpful_ratio", "helpful,\nmean ratio"),
    ("keep_unhelpful", "keep-\nunhelpful"),
    ("drop_unhelpful", "drop-\nunhelpful"),
    ("unused_of_calls", "cut, not\nshown"),
    ("repeated_of_calls", "shown\nbefore"),
    ("late_of_calls", "after the\nfirst useful"),
)
"""Shares of calls, with their column titles."""


def calls_table(calls: Mapping[str, Numbers]) -> Table:
    """The table of calls: a row for right answers, and one for all."""
    table = Table(title="calls (in percent [95 % interval])", title_justify="left")
    for name in ("of", "trajectories\nwith calls", "calls", *(title for _, title in CALLS), "first\nuseful"):
        table.add_column(name, justify="left" if name == "of" else "right", vertical="bottom", no_wrap=True)
    for name, found in calls.items():
        shares = [shown(found[key], Column(key, "")) for key, _ in CALLS]
        first = shown(found["first_useful"], Column("first_useful", "", percent=False))
        table.add_row(name, cell(found["n"]), cell(found["calls"]), *shares, first)
    return table


def _rows(result: Result, everything: bool) -> Iterator[tuple[str, Numbers]]:
    exchanges = result["counterfactual"]["exchanges"] if "counterfactual" in result else {}
    dependent = {f"dependent_{name}": one["dependent_of_correct"] for name, one in exchanges.items()}
    yield "all", {**result["all"], **dependent}
    if len(result["sources"]) > 1:
        yield from result["sources"].items()
    files = list(result["files"].items())
    if len(files) > 1:
        for file, numbers in files if everything else (files[0], files[-1]):
            step = _STEP.match(file)
            yield f"step {int(step[1])}" if step else file, numbers
    if "by_model" in result:
        yield "all, by the model", result["by_model"]["all"]


def _notes(result: Result) -> Iterator[str]:
    yield result["note"]
    if left := result["need_no_look"]:
        sources = ", ".join(f"{source} {count}" for source, count in sorted(left.items()))
        yield f"not counted, since their questions need no look: {sources}"
    if why := result["all"].get("no_chance"):
        yield why
    if result["all"]["n_unscored"] or result["all"]["n_unaudited"]:
        yield f"left out: {result['all']['n_unscored']} unscored, {result['all']['n_unaudited']} unaudited"
    for why, times in result["unscored"].items():
        yield f"{times} times: {why}"
    if unknown := result.get("by_model", {}).get("all", {}).get("no_shares"):
        yield f"no shares by the model: {unknown}"
    if "agreement" in result:
        agreement = ", ".join(f"{name} {cell(value)}" for name, value in result["agreement"].items())
        yield f"boxes and the model: {agreement}"
        if result["by_rule"]:
            yield (
                f"{result['by_rule']} more trajectories have calls that the model was not asked "
                "about: by the rules they are not looks (whole pictures, or none)"
            )
        for name, one in result["asked"].items():
            yield f"{'' if name == one['model'] else f'{name}: '}{one['model']} at {one['base_url']}"
    if result.get("people"):
        yield from people_notes(result["people"])


def people_notes(people: Mapping[str, Any]) -> Iterator[str]:
    """How far people's labels agree with verifiers and with the judge of looks."""
    beside = f", {people['not_found']} of other trajectories" if people["not_found"] else ""
    yield f"labels of people: {people['labelled']}{beside} ({people['labels']})"
    for name, found in people["answers"].items():
        if found["n"] and (name == "all" or len(people["answers"]) > 2):
            verifier = "verifiers" if name == "all" else f"verifier {name}"
            yield (
                f"people and {verifier}, {found['n']} answers: agree {cell(found['agree'])}, "
                f"kappa {cell(found['kappa'])}; wrongly right {found['first_only']}, "
                f"wrongly wrong {found['second_only']}"
            )
    yield from calibration_notes({"judge of looks, by labels": people["calibration"]})
    for name, looks in people["looks"].items():
        if looks["labelled"]:
            yield (
                f"target {name} by calls, {looks['labelled']} labelled: "
                f"judge erred {looks['judge_erred']}, box wrong {looks['box_wrong']}"
            )


def shown(estimate: Mapping[str, float | None] | None, column: Column) -> str:
    """An estimate formatted for its column, with its interval on a second line."""
    if estimate is None:
        return GAP
    low, high = estimate["low"], estimate["high"]
    scale, places = scaled(column)
    value = f"{scale * (estimate['value'] or 0.0):.{places}f}"
    if low is None or high is None:
        return value
    return f"{value}\n[{scale * low:.{places}f}, {scale * high:.{places}f}]"

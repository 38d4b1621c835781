"""Sweeps: one row per variant, with intervals over seeds, and the differences of pairs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.report.numbers import number
from vtune.report.values import cell

Rows = Mapping[str, Mapping[str, Any]]

_APART = {"boxes": ("iou@", "ap"), "gradients": ("gradient norm",)}
"""Numbers that have a table of their own -> what their names begin with."""
_FACTS = ("seeds", "held_out", "no_shares")
"""What of a row is not a number."""


def render_sweeps(tables: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Tables of what `vtune.runs.sweep.table.sweep_table` returned, one sweep after the other."""
    return Group(*(part for table in tables for part in _parts(table)))


def power_lines(power: Mapping[str, Any], seeds: int) -> Iterator[str]:
    """How small a difference the seeds of a sweep can show, as `vtune.metrics.power.power_of` has it."""
    for name, found in power.items():
        if found["shown"] is None:
            yield f"power: one seed has no interval; {name} needs two or more"
            continue
        shown, reach, spread = (number(found[key]) for key in ("shown", "reach", "spread"))
        yield (
            f"power: {seeds} seeds show a difference of {shown} in {name} in 80 of 100 sweeps "
            f"(interval ± {reach}), if it varies by {spread} over seeds"
        )


def _parts(table: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield Text(f"{table['name']}  ({table['path']}; in brackets: {table['interval']})")
    rows = table["variants"]
    trained = {name: row for name, row in rows.items() if row["seeds"] is not None}
    yield from _tables(f"training: means of the last {table['last_steps']} steps", trained)
    for suite in table["suites"]:
        yield from _tables(f"held out: {suite}", _on(suite, rows))
        yield from _reasons(_on(suite, rows))
    if table["differences"]:
        # An untrained model has no training that could differ.
        told = {name: row for name, row in table["differences"].items() if _numbers(row)}
        yield from _tables("differences, seed by seed: training", told)
        for suite in table["suites"]:
            yield from _tables(f"differences, seed by seed: {suite}", _on(suite, table["differences"]))
    if table["unfinished"]:
        yield Text(f"not finished: {', '.join(table['unfinished'])}")


def _on(suite: str, rows: Rows) -> dict[str, Mapping[str, Any]]:
    """The rows of one suite."""
    return {name: {"seeds": row["seeds"], **row["held_out"][suite]} for name, row in rows.items()}


def _reasons(rows: Rows) -> Iterator[Text]:
    """Why a row has no share of faithful answers, each reason once."""
    reasons: dict[str, list[str]] = {}
    for name, row in rows.items():
        if row["no_shares"] is not None:
            reasons.setdefault(row["no_shares"], []).append(name)
    for why, names in reasons.items():
        yield Text(f"no shares for {', '.join(names)}: {why}")


def _tables(title: str, rows: Rows) -> Iterator[Table]:
    """A column for every number that some row has; boxes and gradients have tables of their own."""
    there = {name for row in rows.values() for name in _numbers(row)}
    columns = [name for name in dict.fromkeys(name for row in rows.values() for name in row) if name in there]
    apart = {
        part: [name for name in columns if name.startswith(beginnings)] for part, beginnings in _APART.items()
    }
    rest = [name for name in columns if not any(name in names for names in apart.values())]
    yield _table(title, rows, rest)
    for part, names in apart.items():
        if names:
            yield _table(f"{title}; {part}", rows, names)


def _table(title: str, rows: Rows, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(no_wrap=True)
    for column in ("seeds", *columns):
        table.add_column(column, justify="right")
    for name, row in rows.items():
        table.add_row(name, cell(row["seeds"]), *(_cell(row.get(column), row["seeds"]) for column in columns))
    return table


def _numbers(row: Mapping[str, Any]) -> list[str]:
    """Names of the numbers that a row has."""
    return [name for name, value in row.items() if name not in _FACTS and value is not None]


def _cell(value: Mapping[str, Any] | None, seeds: int | None) -> str:
    """A mean, with its interval if it has one; where fewer runs have it than there are, of how many it is."""
    if value is None:
        return cell(None)
    text = cell(value["value"] if value["low"] is None else value)
    return text if seeds is None or value["n"] == seeds else f"{text} (of {value['n']})"

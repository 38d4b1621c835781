"""Sweeps: one row a variant, with intervals over seeds, and the differences of pairs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.report.values import cell


def render_sweeps(tables: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Tables of what `vtune.runs.sweep_table.sweep_table` returned, one sweep after the other."""
    return Group(*(part for table in tables for part in _parts(table)))


def _parts(table: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield Text(f"{table['name']}  ({table['path']}; in brackets: {table['interval']})")
    steps = f"training: means of the last {table['last_steps']} steps"
    yield _table(f"variants ({steps})", table["variants"])
    if table["differences"]:
        yield _table("differences, seed by seed", table["differences"])
    if table["unfinished"]:
        yield Text(f"not finished: {', '.join(table['unfinished'])}")


def _table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(no_wrap=True)
    for column in dict.fromkeys(column for row in rows.values() for column in row):
        table.add_column(column, justify="right")
    for name, row in rows.items():
        table.add_row(name, *(_cell(value, row["seeds"]) for value in row.values()))
    return table


def _cell(value: Any, seeds: int) -> str:
    """A mean that fewer runs have than there are says of how many it is."""
    if isinstance(value, Mapping) and value["n"] != seeds:
        return f"{cell(value)} (of {value['n']})"
    return cell(value)

"""A result of nested values as tables, for verbs with short results."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from vtune.report.numbers import GAP, number


def render_values(result: Mapping[str, Any]) -> RenderableType:
    """One table of the plain values, then one for each nested mapping, titled by its key.

    An estimate, `{value, low, high}`, is one cell: the value and its interval. A mapping whose values are
    all mappings, or a list of mappings, is a table with one row per mapping.
    """
    return Group(*_tables("", result))


def _tables(title: str, values: Mapping[str, Any]) -> Iterator[RenderableType]:
    plain = {key: value for key, value in values.items() if not _nested(value)}
    if plain:
        table = Table(title=title or None, title_justify="left", show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for key, value in plain.items():
            table.add_row(key, cell(value))
        yield table
    for key, value in values.items():
        if not _nested(value):
            continue
        name = f"{title}.{key}" if title else key
        rows = _rows(value)
        if rows is None:
            yield from _tables(name, value)
        else:
            yield _grid(name, rows)


def _rows(value: Any) -> dict[str, Mapping[str, Any]] | None:
    """Row name -> cells, if every row is a mapping of plain values; else None."""
    rows = value if isinstance(value, Mapping) else {str(index): row for index, row in enumerate(value)}
    flat = all(_is_row(row) for row in rows.values())
    return dict(rows) if flat else None


def _is_row(value: Any) -> bool:
    return isinstance(value, Mapping) and not is_estimate(value) and not any(map(_nested, value.values()))


def _grid(title: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    columns = dict.fromkeys(key for row in rows.values() for key in row)
    table = Table(title=title, title_justify="left")
    table.add_column()
    for column in columns:
        table.add_column(column, justify="right")
    for name, row in rows.items():
        table.add_row(name, *(cell(row.get(column)) for column in columns))
    return table


def _nested(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and not is_estimate(value)
    return isinstance(value, list | tuple) and bool(value) and all(_is_row(row) for row in value)


def is_estimate(value: Mapping[str, Any]) -> bool:
    """Whether a mapping is a value with its interval, or with the reason for having none."""
    return set(value) - {"n", "why", "values", "shown", "by_questions"} == {"value", "low", "high"}


def cell(value: Any) -> str:
    """A plain value, a list of them, or an estimate, as the text of one cell."""
    if value is None:
        return GAP
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, Mapping) and is_estimate(value):
        if value["low"] is None:
            return number(value["value"])
        return f"{number(value['value'])} [{number(value['low'])}, {number(value['high'])}]"
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value)) or GAP
    return str(value) if value else GAP


def uses_lines(run: Mapping[str, Any]) -> str:
    """Lines below the head of a run or evaluation that list the files of custom parts it used."""
    return "".join(
        f"\n  uses {name}, SHA-256 {str(file['sha256'])[:16]}"
        + ("" if file["kept"] else "; the copy in the folder is missing or differs")
        for name, file in run.get("uses", {}).items()
    )

"""What a search of an index found, in the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

LONGEST = 300
"""Characters of a text that a table shows."""


def render_found(result: Mapping[str, Any]) -> RenderableType:
    """What `vtune.runs.data.searching.search_index` returned: one table per query."""
    return Group(*(_table(one) for one in result["results"]))


def _table(one: Mapping[str, Any]) -> RenderableType:
    if not one["found"]:
        return Text(f"{one['query']}: nothing found")
    table = Table()
    table.add_column("score", justify="right", no_wrap=True)
    columns = [key for key in ("id", "title", "text") if any(row.get(key) for row in one["found"])]
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in one["found"]:
        table.add_row(f"{row['score']:.4g}", *(Text(_brief(row[key])) for key in columns))
    return Group(Text(one["query"]), table)


def _brief(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST].rstrip()} …"

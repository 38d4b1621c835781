"""What `vtune recipes check` found: a table per pair of writer and reader, then what is wrong."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Row = Mapping[str, Any]

LEVELS = {"ok": "", "note": "note", "break": "BREAK"}


def render_joins(result: Mapping[str, Any]) -> RenderableType:
    """All joins by pair, then the problems, then the counts."""
    return Group(*_parts(result))


def _parts(result: Mapping[str, Any]) -> Iterator[RenderableType]:
    pairs: dict[tuple[str, str], list[Row]] = {}
    for join in result["joins"]:
        pairs.setdefault((join["writer"], join["reader"]), []).append(join)
    for (writer, reader), joins in pairs.items():
        yield _table(f"{writer} → {reader}", joins)
    for join in sorted(result["joins"], key=lambda join: join["level"] == "break"):
        if join["level"] != "ok":
            yield Text(f"{LEVELS[join['level']]}  {join['writer']} → {join['reader']}, {join['about']}")
            yield Text(f"  {join['why']}\n  fix  {join['fix']}")
    breaks, notes = result["breaks"], result["notes"]
    yield Text(
        f"{_many(len(result['recipes']), 'recipe')}, {_many(len(result['joins']), 'join')}: "
        f"{_many(breaks, 'break')}, {_many(notes, 'note')}"
    )


def _many(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"


def _table(title: str, joins: Sequence[Row]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for column in ("written", "read"):
        table.add_column(column, overflow="fold")
    table.add_column("")
    alike: dict[tuple[str, str, str], list[str]] = {}
    for join in joins:
        alike.setdefault((join["about"], join["written"], join["level"]), []).append(join["read"])
    for (about, written, level), read in alike.items():
        table.add_row(about, written, _first(read), LEVELS[level])
    return table


def _first(read: Sequence[str]) -> str:
    return read[0] if len(read) == 1 else f"{read[0]} and {len(read) - 1} more"

"""Exported tables of estimates: CSV with interval bounds, and LaTeX to paste into a paper."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Numbers = Mapping[str, Any]
"""`n`, `clusters`, and for each column name an estimate (`value`, `low`, `high`) or None."""
Row = tuple[str, Numbers]
"""A row's name and its numbers."""

FORMULA = ("=", "+", "-", "@")
"""Characters with which a spreadsheet formula may begin."""


@dataclass(frozen=True, slots=True)
class Column:
    """A numeric column of a table."""

    name: str
    title: str
    percent: bool = True
    """Whether it is a share in [0, 1], shown to people in percent."""


LOOKS = (
    Column("accuracy", "accuracy"),
    Column("faithful_of_correct", "faithful, of the correct"),
    Column("faithful_by_chance", "by chance, of the correct"),
    Column("faithful_of_all", "faithful, of all"),
    Column("unfaithful_of_all", "right but unfaithful, of all"),
    Column("no_tool_of_all", "right without a tool, of all"),
    Column("tool_calls", "tool calls", percent=False),
    Column("red_flags", "red flags", percent=False),
)
"""Columns about the looks behind answers (`vtune.metrics.faithfulness.Faithfulness`)."""


def scaled(column: Column) -> tuple[float, int]:
    """Factor and number of decimals with which a column is shown to people."""
    return (100, 1) if column.percent else (1, 2)


COUNTS = ("n", "clusters")
"""First columns of a CSV line, after its name."""


def as_csv(rows: Iterable[Row], columns: Sequence[Column], head: str, counts: Sequence[str] = COUNTS) -> str:
    """One line per row, with `_low` and `_high` beside each number; shares are not in percent.

    Args:
        rows: The rows to write.
        columns: Numbers of each row, in order.
        head: Header of the names' column.
        counts: Numbers without an interval, written before the others.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    ends = [(one.name, end) for one in columns for end in ("value", "low", "high")]
    heads = [name if end == "value" else f"{name}_{end}" for name, end in ends]
    writer.writerow([head, *counts, *heads])
    for name, numbers in rows:
        values = [(numbers.get(column) or {}).get(end) for column, end in ends]
        safe = f"'{name}" if name.startswith(FORMULA) else name
        writer.writerow([safe, *(numbers.get(count) for count in counts), *values])
    return out.getvalue()


def as_latex(rows: Iterable[Row | None], columns: Sequence[Column], notes: Iterable[str]) -> str:
    """A `tabular` for the package booktabs, in percent with intervals; notes are comments above it.

    A row that is None becomes a rule.
    """
    head = " & ".join(["", "$n$", *(_escaped(one.title) for one in columns)])
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(columns) + 1)}}}", r"\toprule", rf"{head} \\", r"\midrule"]
    for row in rows:
        if row is None:
            lines.append(r"\midrule")
            continue
        name, numbers = row
        cells = [_in_latex(numbers.get(one.name), one) for one in columns]
        lines.append(rf"{' & '.join([_escaped(name), str(numbers['n']), *cells])} \\")
    return comments(notes) + "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def comments(notes: Iterable[str]) -> str:
    """A LaTeX comment line for each note."""
    return "".join(f"% {_one_line(note)}\n" for note in notes)


def _in_latex(estimate: Mapping[str, float | None] | None, column: Column) -> str:
    if estimate is None or estimate["value"] is None:
        return "--"
    scale, places = scaled(column)
    value, low, high = estimate["value"], estimate["low"], estimate["high"]
    if low is None or high is None:
        return f"{scale * value:.{places}f}"
    ends = f"{scale * low:.{places}f}, {scale * high:.{places}f}"
    return f"{scale * value:.{places}f} {{\\scriptsize [{ends}]}}"


def _escaped(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {mark: f"\\{mark}" for mark in "&%$#_{}"}
    return "".join(special.get(mark, mark) for mark in _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())

"""Sweeps: one row per variant, with intervals over seeds, paired differences and statistical power."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.report.numbers import GAP, number
from vtune.report.values import cell

Rows = Mapping[str, Mapping[str, Any]]
Plain = dict[str, Any]
"""`title`, `note`, `head` and `rows` as plain texts, for a terminal or page; `part`: which part of a row."""

_APART = {
    "rewards": ("accuracy reward", "format reward", "tool reward", "consistency reward", "own reward"),
    (_WHOLE := "all steps"): ("accuracy, all steps", "largest fall", "minutes"),
    "habits": ("no look", "whole picture", "look beside", "by cue"),
    "boxes": ("iou@", "ap"),
    "gradients": ("gradient norm",),
}
"""Part of a row with its own table -> prefixes of the names of its numbers."""
_SELDOM = ("rewards", "gradients")
"""Parts that a terminal shows only on request."""
FACTS = ("seeds", "held_out", "no_shares")
"""Entries of a row that are not numbers."""
_UNITS = ("entropy", "tool calls", "minutes", "gradient norm", *_APART["rewards"])
"""Prefixes of numbers that are not shares; shares are shown in percent."""
MAIN = ("accuracy", "faithful", "iou@99")
"""Numbers whose differences are plotted, with the smallest detectable difference."""


def render_sweeps(tables: Sequence[Mapping[str, Any]], *, everything: bool = False) -> RenderableType:
    """Results of `vtune.runs.sweep.table.sweep_table` as tables, one sweep after another.

    Args:
        tables: The results.
        everything: Also show reward parts and gradients.
    """
    return Group(*(part for table in tables for part in _parts(table, everything)))


def power_lines(power: Mapping[str, Any], seeds: int) -> Iterator[str]:
    """The smallest difference that a sweep's seeds can detect, from `vtune.metrics.power.power_of`."""
    for name, found in power.items():
        if found["shown"] is None:
            yield f"power: one seed has no interval; {name} needs two or more"
            continue
        shown, reach, spread = (number(found[key]) for key in ("shown", "reach", "spread"))
        yield (
            f"power: {seeds} seeds show a difference of {shown} in {name} in 80 of 100 sweeps "
            f"(interval ± {reach}), if it varies by {spread} over seeds"
        )


def plain_tables(table: Mapping[str, Any]) -> Iterator[Plain]:
    """The tables of a sweep, in order. A number that is 0 in every run gets no column."""
    rows = table["variants"]
    trained = {name: row for name, row in rows.items() if row["seeds"] is not None}
    # An untrained model has no training that could differ.
    pairs = {name: row for name, row in table["differences"].items() if _numbers(row)}
    last = f"; mean of the last {table['last_steps']} steps"
    yield from _tables("training", trained, trained, last=last)
    for suite in table["suites"]:
        of = on_suite(suite, rows)
        yield from _tables(f"held out: {suite}", of, of, note="; ".join(_reasons(of)))
    yield from _tables("differences, seed by seed: training", pairs, trained, last=last, unit="points")
    for suite in table["suites"]:
        of, measured = on_suite(suite, table["differences"]), on_suite(suite, rows)
        note = "; ".join(_wider(of, share=is_share("accuracy", measured)))
        yield from _tables(f"differences, seed by seed: {suite}", of, measured, note=note, unit="points")
    yield from _power(table)


def effects(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The plotted differences of a sweep: in accuracy, faithful answers and tight boxes, on every suite.

    Returns:
        `title`, `unit`, and `rows`: `name`, `value`, `low`, `high` (None with one seed, or if all are equal),
        `values` by seed, and `by_questions` with `low` and `high` (None if unknown). Differences of shares
        are in percentage points.
    """
    for suite in table["suites"]:
        measured, pairs = on_suite(suite, table["variants"]), on_suite(suite, table["differences"])
        for key in MAIN:
            rows = {name: row[key] for name, row in pairs.items() if row[key] is not None}
            if rows:
                share = is_share(key, measured)
                yield {
                    "title": f"{suite}: {key}",
                    "unit": "points" if share else "",
                    "rows": [_scaled(name, one, 100 if share else 1) for name, one in rows.items()],
                }


def _scaled(name: str, found: Mapping[str, Any], scale: int) -> dict[str, Any]:
    ends = {end: None if found[end] is None else scale * found[end] for end in ("value", "low", "high")}
    over = found.get("by_questions")
    return {
        "name": name,
        **ends,
        "values": [scale * value for value in found["values"]],
        "by_questions": over and {end: scale * over[end] for end in ("low", "high")},
    }


def _parts(table: Mapping[str, Any], everything: bool) -> Iterator[RenderableType]:
    yield Text(f"{table['name']}  ({table['path']}; in brackets: {table['interval']})")
    tables = list(plain_tables(table))
    shown = [one for one in tables if everything or one["part"] not in _SELDOM]
    for one in shown:
        drawn = Table(title=one["title"], title_justify="left")
        drawn.add_column(no_wrap=True)
        for column in one["head"][1:]:
            drawn.add_column(column, justify="right")
        for name, *cells in one["rows"]:
            drawn.add_row(name, *(text.replace(" [", "\n[") for text in cells))
        yield drawn
        if one["note"]:
            yield Text(one["note"])
    if len(shown) < len(tables):
        yield Text(f"`vtune report {table['path']} --all` also shows {' and '.join(_SELDOM)}")
    if table["unfinished"]:
        yield Text(f"not finished: {', '.join(table['unfinished'])}")


def on_suite(suite: str, rows: Rows) -> dict[str, Mapping[str, Any]]:
    """The rows of one suite."""
    return {name: {"seeds": row["seeds"], **row["held_out"][suite]} for name, row in rows.items()}


def _reasons(rows: Rows) -> Iterator[str]:
    """Why rows have no share of faithful answers, each reason once."""
    reasons: dict[str, list[str]] = {}
    for name, row in rows.items():
        if row["no_shares"] is not None:
            reasons.setdefault(row["no_shares"], []).append(name)
    for why, names in reasons.items():
        yield f"no shares for {', '.join(names)}: {why}"


def _wider(rows: Rows, *, share: bool) -> Iterator[str]:
    """Accuracy differences with a wider interval over questions than over seeds, or with only one seed."""
    for name, row in rows.items():
        seeds = row["accuracy"]
        over = seeds and seeds["by_questions"]
        if not over:
            continue
        text = f"{name}: accuracy over its questions {_cell(over | {'n': seeds['n']}, None, share=share)}"
        if is_wider(seeds):
            yield text if seeds["low"] is None else f"{text}, wider than over seeds"


def is_wider(found: Mapping[str, Any]) -> bool:
    """Whether the interval over questions, which must exist, is wider than the one over seeds."""
    over = found["by_questions"]
    return bool(found["low"] is None or over["high"] - over["low"] > found["high"] - found["low"])


def _tables(
    title: str, rows: Rows, measured: Rows, *, last: str = "", note: str = "", unit: str = "%"
) -> Iterator[Plain]:
    """A column for every number that is not 0 in all rows; some numbers have separate tables.

    Args:
        title: Title of the tables.
        rows: The rows to show.
        measured: The variants' rows, whose values decide if a number is a share.
        last: Appended to the titles of tables that do not cover all steps.
        note: Text below the first table.
        unit: Unit of shares.
    """
    columns = [
        name
        for name in dict.fromkeys(name for row in rows.values() for name in _numbers(row))
        if name == "accuracy" or any(_moves(row.get(name)) for row in rows.values())
    ]
    apart = {
        part: [name for name in columns if name.startswith(beginnings)] for part, beginnings in _APART.items()
    }
    rest = [name for name in columns if not any(name in names for names in apart.values())]
    parts = [("", title + last, rest, note)]
    parts += [
        (part, f"{title}; {part}" + (last if part != _WHOLE else ""), names, "")
        for part, names in apart.items()
    ]
    for part, name, names, below in parts:
        if names:
            shares = {one: is_share(one, measured) for one in names}
            heads = [f"{one}, {unit}" if share else one for one, share in shares.items()]
            yield {
                "part": part,
                "title": name,
                "note": below,
                "head": ["", "seeds", *heads],
                "rows": _rows(rows, shares),
            }


def _rows(rows: Rows, shares: Mapping[str, bool]) -> list[list[str]]:
    """Rows as text. `shares` maps a number to whether it is a share."""
    return [
        [
            name,
            cell(row["seeds"]),
            *(_cell(row.get(number), row["seeds"], share=share) for number, share in shares.items()),
        ]
        for name, row in rows.items()
    ]


def _power(table: Mapping[str, Any]) -> Iterator[Plain]:
    """The smallest differences that the seeds could have shown: a column for training and for each suite."""
    measured = {
        "training": table["variants"],
        **{suite: on_suite(suite, table["variants"]) for suite in table["suites"]},
    }
    found = {
        "training": table["differences"],
        **{suite: on_suite(suite, table["differences"]) for suite in table["suites"]},
    }
    rows = [
        [
            f"{pair}: {name}",
            cell(row["seeds"]),
            *(
                _could_show(of[pair].get(name), row["seeds"], share=is_share(name, measured[place]))
                for place, of in found.items()
            ),
        ]
        for pair, row in table["differences"].items()
        for name in MAIN
        if any(_shown(of[pair].get(name)) is not None for of in found.values())
    ]
    if rows:
        title = "smallest true difference found in 80 of 100 such sweeps, given how much these seeds vary"
        note = (
            "Shares in percentage points. The spread over a few seeds is itself uncertain. For accuracy on "
            "a suite, the spread over its questions counts instead wherever it leaves more uncertainty."
        )
        yield {"part": "", "title": title, "note": note, "head": ["", "seeds", *found], "rows": rows}


def is_share(name: str, rows: Rows) -> bool:
    """Whether a number is a share in [0, 1], shown in percent: some benchmarks count points."""
    there = [row[name]["value"] for row in rows.values() if row.get(name)]
    return not name.startswith(_UNITS) and all(abs(value) <= 1 for value in there)


def _numbers(row: Mapping[str, Any]) -> list[str]:
    """Names of a row's numbers."""
    return [name for name, value in row.items() if name not in FACTS and value is not None]


def _moves(value: Mapping[str, Any] | None) -> bool:
    return value is not None and any(value["values"])


def _shown(value: Mapping[str, Any] | None) -> float | None:
    found: float | None = value["shown"] if value else None
    return found


def _could_show(value: Mapping[str, Any] | None, seeds: int, *, share: bool) -> str:
    shown = _shown(value)
    if value is None or shown is None:
        return GAP
    return _of(_size(shown, share=share), value, seeds)


def _cell(value: Mapping[str, Any] | None, seeds: int | None, *, share: bool) -> str:
    """A mean, with its interval if it has one."""
    if value is None:
        return GAP
    text = _size(value["value"], share=share)
    if value["low"] is not None:
        text += f" [{_size(value['low'], share=share)}, {_size(value['high'], share=share)}]"
    return _of(text, value, seeds)


def _of(text: str, value: Mapping[str, Any], seeds: int | None) -> str:
    """The text, plus the number of runs behind it if some runs lack the value."""
    return text if seeds is None or value["n"] == seeds else f"{text} (of {value['n']})"


def _size(value: float, *, share: bool) -> str:
    if share or abs(value) >= 100:
        return f"{100 * value if share else value:.1f}"
    return number(float(f"{value:.3g}"))

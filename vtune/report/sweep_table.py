"""Sweeps as exported tables: CSV with every number, and LaTeX with the held-out ones."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vtune.report.sweep import FACTS, MAIN, is_share, is_wider, on_suite
from vtune.report.tabular import FORMULA, Column, Numbers, Row, as_latex

HEAD = (
    *("sweep", "kind", "name", "where", "number", "n", "value", "low", "high"),
    *("low_by_questions", "high_by_questions", "shown", "values"),
)
TRAINING = "training"
NONE = "--"
"""Shown instead of the number of seeds for an untrained model."""


def sweeps_csv(tables: Sequence[Mapping[str, Any]]) -> str:
    """A line for each number of each variant and of each difference, in training and on every suite.

    `where` is `training` or a suite; `shown` is the smallest true difference that this many seeds detect in
    80 of 100 sweeps; `values` are by seed, separated by spaces.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEAD)
    for table in tables:
        for kind, name, where, number, found in _numbers(table):
            sweep, safe = (f"'{one}" if one.startswith(FORMULA) else one for one in (table["name"], name))
            ends = (found[key] for key in ("n", "value", "low", "high"))
            values = " ".join(map(repr, found["values"]))
            over = found.get("by_questions") or {}
            more = (over.get("low"), over.get("high"), found.get("shown"), values)
            writer.writerow([sweep, kind, safe, where, number, *ends, *more])
    return out.getvalue()


def sweeps_latex(tables: Sequence[Mapping[str, Any]]) -> str:
    """A `tabular` for each sweep: variants, a rule, and their differences seed by seed.

    A difference whose interval over questions is wider than over seeds gets that interval, with a comment.
    """
    return "".join(map(_latex, tables))


def _numbers(table: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str, Mapping[str, Any]]]:
    for kind, key in (("variant", "variants"), ("difference", "differences")):
        for name, row in table[key].items():
            for where in (TRAINING, *table["suites"]):
                numbers = row if where == TRAINING else row["held_out"][where]
                for number, found in numbers.items():
                    if number not in FACTS and found is not None:
                        yield kind, name, where, number, found


def _latex(table: Mapping[str, Any]) -> str:
    places = {TRAINING: table["variants"]} | {
        suite: on_suite(suite, table["variants"]) for suite in table["suites"]
    }
    columns = [
        Column(f"{place}: {number}", f"{place}: {number}", is_share(number, measured))
        for place, measured in places.items()
        for number in MAIN
        if any(row.get(number) for row in measured.values())
    ]
    rows = [*_rows(table, "variants"), None, *_rows(table, "differences")]
    return as_latex(rows if table["differences"] else rows[:-1], columns, list(_notes(table, columns)))


def _notes(table: Mapping[str, Any], columns: Sequence[Column]) -> Iterator[str]:
    yield f"{table['name']} ({table['path']}); in brackets: {table['interval']}"
    for name, numbers in (*_rows(table, "variants"), *_rows(table, "differences")):
        for column in columns:
            found = numbers[column.name]
            if found and numbers["n"] not in (found["n"], NONE):
                yield f"{name}, {column.title}: of {found['n']}"
            if found and found.get("over"):
                yield f"{name}, {column.title}: the interval is over questions"
    yield from unfinished_in(table)


def unfinished_in(table: Mapping[str, Any]) -> Iterator[str]:
    """What a sweep lacks, if anything."""
    if table["unfinished"]:
        yield f"not finished: {', '.join(table['unfinished'])}"


def _rows(table: Mapping[str, Any], key: str) -> Iterator[Row]:
    for name, row in table[key].items():
        places = {TRAINING: row, **row["held_out"]}
        numbers: Numbers = {
            f"{place}: {number}": _widest(of.get(number)) for place, of in places.items() for number in MAIN
        }
        yield name, {"n": NONE if row["seeds"] is None else row["seeds"], **numbers}


def _widest(found: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A number with the wider of its intervals; `over` marks the one over questions."""
    if found is None or not found.get("by_questions") or not is_wider(found):
        return found
    over = found["by_questions"]
    return {**found, "low": over["low"], "high": over["high"], "over": True}

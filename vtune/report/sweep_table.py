"""Sweeps as tables for elsewhere: CSV with every number, and LaTeX with those that are held out."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vtune.report.sweep import MAIN, is_share, on_suite
from vtune.report.tabular import FORMULA, Column, Numbers, Row, as_latex

HEAD = ("sweep", "kind", "name", "where", "number", "n", "value", "low", "high", "shown", "values")
TRAINING = "training"
_FACTS = ("seeds", "held_out", "no_shares")


def sweeps_csv(tables: Sequence[Mapping[str, Any]]) -> str:
    """A line for each number of each variant and of each difference, in training and on every suite.

    `where` is `training` or a suite; `shown` the smallest true difference that as many seeds show in 80 of
    100 sweeps; `values` are by seed, with spaces between.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEAD)
    for table in tables:
        for kind, name, where, number, found in _numbers(table):
            safe = f"'{name}" if name.startswith(FORMULA) else name
            ends = (found[key] for key in ("n", "value", "low", "high"))
            values = " ".join(map(repr, found["values"]))
            writer.writerow([table["name"], kind, safe, where, number, *ends, found.get("shown"), values])
    return out.getvalue()


def sweeps_latex(tables: Sequence[Mapping[str, Any]]) -> str:
    """A `tabular` for each sweep: variants, a rule, and their differences seed by seed."""
    return "".join(map(_latex, tables))


def _numbers(table: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str, Mapping[str, Any]]]:
    for kind, key in (("variant", "variants"), ("difference", "differences")):
        for name, row in table[key].items():
            for where in (TRAINING, *table["suites"]):
                numbers = row if where == TRAINING else row["held_out"][where]
                for number, found in numbers.items():
                    if number not in _FACTS and found is not None:
                        yield kind, name, where, number, found


def _latex(table: Mapping[str, Any]) -> str:
    several = len(table["suites"]) > 1
    columns = [
        Column(f"{suite}: {number}", f"{suite}: {number}" if several else number, is_share(number, measured))
        for suite in table["suites"]
        for measured in [on_suite(suite, table["variants"])]
        for number in MAIN
        if any(row[number] is not None for row in measured.values())
    ]
    notes = [f"{table['name']} ({table['path']}); in brackets: {table['interval']}"]
    rows = [*_rows(table, "variants"), None, *_rows(table, "differences")]
    return as_latex(rows if table["differences"] else rows[:-1], columns, notes)


def _rows(table: Mapping[str, Any], key: str) -> Iterator[Row]:
    for name, row in table[key].items():
        numbers: Numbers = {
            f"{suite}: {number}": row["held_out"][suite][number]
            for suite in table["suites"]
            for number in MAIN
        }
        yield name, {"n": "--" if row["seeds"] is None else row["seeds"], **numbers}

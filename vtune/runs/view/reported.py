"""Rows that papers report for an evaluation's suite, beside its own."""

from collections.abc import Iterator, Mapping
from typing import Any

from vtune.config import read_values, shipped
from vtune.report.numbers import GAP, number
from vtune.report.values import cell, is_estimate

TABLES = "eval_suites.published"
"""The package in which papers' tables ship; `vtune.runs.evaluate.published` checks them, but loads torch."""
OTHERS = ("n", "why")
"""Keys of an estimate besides its value and the ends of its interval."""
NOTE = (
    "in percent; rows of papers are as printed, under their settings, and were not measured here: "
    "`vtune eval --out DIR --against published:SUITE/ROW` says what differs"
)
BOXES = "boxes say what a call shows here, and GPT-4o does in the paper: not comparable"
MODEL = "a model says what a call shows, as in the paper: another model judges differently"
SAME = ("format", "kind")
"""Settings that identify a suite's benchmark, besides what is known about its published file."""


def reported_rows(
    suite: Mapping[str, Any], score: Mapping[str, Any], looks: Mapping[str, Any], *, by_boxes: bool
) -> Iterator[dict[str, Any]]:
    """The tables of each paper that reports the suite, with this evaluation on top; none for other suites.

    Args:
        suite: Its settings, as stored by the evaluation.
        score: The result of its scorer.
        looks: Its faithfulness.
        by_boxes: Whether boxes decide what a call shows; papers ask a model.
    """
    name = _shipped_name(suite)
    if name is None:
        return
    for file in shipped(TABLES).values():
        table = read_values(file)
        if rows := _rows(table["rows"], name):
            yield _beside(
                f"{name} beside {table['paper']}, {table['table']}", "score", NOTE, _score(score), rows
            )
        printed = table.get("faithful")
        if printed and (rows := _rows(printed["rows"], name)):
            title = f"faithful and right, of all, beside {table['paper']}, {printed['table']}"
            note = f"{NOTE}; {BOXES if by_boxes else MODEL}"
            yield _beside(title, "faithful", note, in_percent(looks.get("faithful_of_all")), rows)


def _rows(rows: Mapping[str, Mapping[str, float]], name: str) -> list[list[str]]:
    return [[row, number(of[name]), "reported"] for row, of in rows.items() if name in of]


def _beside(title: str, column: str, note: str, ours: str, rows: list[list[str]]) -> dict[str, Any]:
    head = ["model", column, ""]
    return {
        "title": title,
        "note": note,
        "head": head,
        "rows": [["this evaluation", ours, "measured"], *rows],
    }


def _score(score: Mapping[str, Any]) -> str:
    estimate, plain = (score.get("intervals") or {}).get("score"), score.get("score")
    known = isinstance(estimate, Mapping) and is_estimate(estimate)
    return in_percent(estimate if known else {"value": plain if isinstance(plain, int | float) else None})


def in_percent(estimate: Any) -> str:
    """A share in percent as the text of a cell, with its interval if there is one."""
    if not isinstance(estimate, Mapping) or "value" not in estimate:
        return GAP
    scaled = {
        key: None if value is None else 100 * value for key, value in estimate.items() if key not in OTHERS
    }
    return cell(scaled if scaled.keys() >= {"low", "high"} else scaled["value"])


def _shipped_name(suite: Mapping[str, Any]) -> str | None:
    """The shipped suite that has these settings, if there is exactly one."""
    known = suite.get("published") or {}
    if known.get("rows") is None:
        return None
    found = []
    for name, file in shipped("eval_suites").items():
        values = read_values(file)
        published = values.get("published") or {}
        same = all(values.get(key) == suite.get(key) for key in SAME)
        if same and published and all(known.get(key) == value for key, value in published.items()):
            found.append(name)
    return found[0] if len(found) == 1 else None

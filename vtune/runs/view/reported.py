"""Rows that papers report on the suite of an evaluation, beside its own."""

from collections.abc import Iterator, Mapping
from typing import Any

from vtune.config import read_values, shipped
from vtune.report.numbers import number
from vtune.report.values import cell, is_estimate

TABLES = "eval_suites.published"
"""The package in which papers' tables ship; `vtune.runs.evaluate.published` checks them, and loads torch."""
OTHERS = ("n", "why")
"""What an estimate says beside its value and the ends of its interval."""
SAME = ("format", "kind")
"""What of its settings says which benchmark a suite is, beside what is known of its published file."""


def reported_rows(suite: Mapping[str, Any], score: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One table for each paper that reports the suite, this evaluation on top; none for other suites.

    Args:
        suite: Its settings, as the evaluation kept them.
        score: What its scorer said.
    """
    name = _shipped_name(suite)
    papers: dict[str, list[list[str]]] = {}
    for file in shipped(TABLES).values() if name else ():
        table = read_values(file)
        rows = papers.setdefault(f"{table['paper']}, {table['table']}", [])
        rows += [[row, number(of[name]), "reported"] for row, of in table["rows"].items() if name in of]
    estimate, plain = (score.get("intervals") or {}).get("score"), score.get("score")
    ours: Mapping[str, Any] = {"value": plain if isinstance(plain, int | float) else None}
    ours = estimate if isinstance(estimate, Mapping) and is_estimate(estimate) else ours
    scaled = {key: None if value is None else 100 * value for key, value in ours.items() if key not in OTHERS}
    shown = cell(scaled if scaled.keys() >= {"low", "high"} else scaled["value"])
    for paper, rows in papers.items():
        if not rows:
            continue
        yield {
            "title": f"{name} beside {paper}",
            "note": "in percent; rows of papers are as printed, under their settings, and were not measured "
            "here: `vtune eval --out DIR --against published:SUITE/ROW` says what differs",
            "head": ["model", "score", ""],
            "rows": [["this evaluation", shown, "measured"], *rows],
        }


def _shipped_name(suite: Mapping[str, Any]) -> str | None:
    """The shipped suite that settings are of, where exactly one is."""
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

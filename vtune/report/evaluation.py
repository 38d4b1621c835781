"""Evaluations side by side: one table per part, one row per number."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.metrics.power import FEWEST
from vtune.metrics.scored import is_mean
from vtune.report.numbers import percent
from vtune.report.values import cell, is_estimate, uses_lines

Evaluation = Mapping[str, Any]
"""The content of `results.json`, plus the `name` and `path` of its folder."""

ONE_AND_ALL = 2
"""Rows by source if there is only one source: the row over all repeats it."""


TELLING = (
    *("accuracy", "faithful_of_correct", "faithful_by_chance", "faithful_of_all", "no_tool_of_all"),
    *("tool_calls", "red_flags"),
    *("n", "no_shares"),
)
"""Numbers of faithfulness that are shown by default."""


BY_BOXES = "faithfulness is by boxes: not comparable with CodeV's Table 5, where a model judges"

NOT_THE_MEAN = "the score is not their mean, so the smallest difference they can detect is unknown"

SEVERAL = ("score", "samples", "unreadable", "unscored")
"""Numbers that are shown of each of several suites."""

HABITS = {
    "everything": "all",
    "none": "no look",
    "whole": "whole picture",
    "miss": "look beside",
    "shows": "look that shows",
}
"""Part of `habits` -> its title."""
SAID = (("everything", "share"), ("everything", "accuracy"))
"""Numbers that are shown elsewhere, or carry no information."""


def render_evaluations(evaluations: Sequence[Evaluation], *, everything: bool = True) -> RenderableType:
    """Tables of scores, of faithfulness and of each source, with a column for each evaluation.

    Args:
        evaluations: What to show.
        everything: Also show every source and every number of faithfulness.
    """
    if not evaluations:
        return Group()
    heads = [Text(_head(evaluation)) for evaluation in evaluations]
    sources = dict.fromkeys(source for evaluation in evaluations for source in evaluation["sources"])
    if all(len(evaluation["sources"]) <= ONE_AND_ALL for evaluation in evaluations):
        sources.pop("all", None)
    parts = {
        "score": [_leaves(evaluation["score"]) for evaluation in evaluations],
        "over rollouts": [dict(_over_rollouts(evaluation)) for evaluation in evaluations],
        "faithfulness": [dict(_faithfulness(evaluation)) for evaluation in evaluations],
        "habits": [dict(_habits(evaluation)) for evaluation in evaluations],
    } | {
        f"source: {source}": [_leaves(evaluation["sources"].get(source, {})) for evaluation in evaluations]
        for source in sources
    }
    names = [str(evaluation["name"]) for evaluation in evaluations]
    if not everything:
        parts = {title: columns for title, columns in parts.items() if not title.startswith("source: ")}
        parts["faithfulness"] = [
            {name: column[name] for name in TELLING if column.get(name) is not None}
            for column in parts["faithfulness"]
        ]
    tables = [_table(title, names, columns) for title, columns in parts.items() if any(columns)]
    return Group(*heads, *tables)


def render_several(evaluations: Sequence[Evaluation]) -> RenderableType:
    """One table with a row for each evaluation, what is to be said of each, and where its other numbers are.

    Args:
        evaluations: Evaluations of one model on several suites, which have few numbers in common.
    """
    if not evaluations:
        return Group()
    table = Table(title="score", title_justify="left")
    for column in ("suite", *SEVERAL):
        table.add_column(column, justify="left" if column == "suite" else "right", no_wrap=True)
    for evaluation in evaluations:
        found = {"samples": evaluation["samples"]} | _leaves(evaluation["score"])
        table.add_row(str(evaluation["name"]), *(cell(found.get(name)) for name in SEVERAL))
    heads = [Text(_head(evaluation)) for evaluation in evaluations]
    other = Text(f"`vtune report {evaluations[0]['path']} --all` shows all numbers of one suite")
    return Group(table, *heads, other)


def _head(evaluation: Evaluation) -> str:
    limit = "" if evaluation["limit"] is None else ", the first ones only"
    judged = f"\n  {BY_BOXES}" if is_by_boxes(evaluation) else ""
    return (
        f"{evaluation['name']}  ({evaluation['path']}): {evaluation['model']} on "
        f"{evaluation['samples']} samples{limit}{_power(evaluation)}{_without_score(evaluation)}{judged}"
        f"{uses_lines(evaluation)}"
    )


def _without_score(evaluation: Evaluation) -> str:
    """Why a mean over parts is missing."""
    parts = evaluation["score"].get("unscored_parts", ())
    return f"\n  the mean over parts is missing: nothing was scored in {', '.join(parts)}" if parts else ""


def _power(evaluation: Evaluation) -> str:
    """The smallest detectable difference; empty for evaluations older than `power`."""
    power = evaluation.get("power")
    if not power:
        return ""
    questions = f"{power['clusters']} independent question{'s' * (power['clusters'] != 1)}"
    if not is_mean(evaluation):
        return f"\n  {questions}: {NOT_THE_MEAN}"
    return f"\n  {questions}: {_shown(power)}"


def _shown(power: Mapping[str, Any]) -> str:
    """The smallest difference that is detected, at best and if a typical share of the answers differs."""
    least, likely, discordant = power["paired_at_best"], power["paired"], power["discordant"]
    if power["clusters"] < FEWEST:
        return f"too few to detect a difference from another model, which takes at least {FEWEST}"
    if least is None or least >= 1:
        return "too few to detect a difference from another model"
    said = f"can detect a difference of {100 * least:.1f} points from another model with 80 % power at best"
    alike = " (all to a question alike)" if power.get("answers", 0) > power["clusters"] else ""
    where = f"{percent(discordant)} of the answers differ{alike}"
    if likely is None or likely > discordant:
        return f"{said}, and none if only {where}"
    return f"{said}, and one of {100 * likely:.1f} if {where}" if likely > least else said


def is_by_boxes(evaluation: Evaluation) -> bool:
    """Whether boxes decide what a call shows; false for evaluations older than `judged_by`."""
    return bool((evaluation.get("judged_by") or {}).get("boxes"))


def _table(title: str, names: Sequence[str], columns: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("number", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    for row in dict.fromkeys(row for column in columns for row in column):
        table.add_row(row, *(cell(column.get(row)) for column in columns))
    return table


def needs_look(evaluation: Evaluation) -> bool:
    """Whether any question of an evaluation needs a look, or this is unknown."""
    found = evaluation["faithfulness"]
    return any(
        (found.get("n", 1), found.get("n_unscored"), found.get("no_shares"), evaluation.get("unaudited"))
    )


def _over_rollouts(evaluation: Evaluation) -> Iterator[tuple[str, Any]]:
    """Numbers over several rollouts per question, each with its number of questions if that is not all."""
    for name, value in (evaluation.get("repeated") or {}).items():
        yield name, value
        if isinstance(value, Mapping) and "n" in value:
            yield f"{name}, questions", value["n"]


def _faithfulness(evaluation: Evaluation) -> Iterator[tuple[str, Any]]:
    """Numbers of faithfulness; nothing if no question needs a look."""
    if not needs_look(evaluation):
        return
    found = evaluation["faithfulness"]
    for name, value in found.items():
        if name != "buckets":
            yield name, value
    for bucket in found.get("buckets", ()):
        yield f"{bucket['calls']} calls, share", bucket["share"]
        yield f"{bucket['calls']} calls, accuracy", bucket["accuracy"]
    yield "unaudited", evaluation["unaudited"]


def _habits(evaluation: Evaluation) -> Iterator[tuple[str, Any]]:
    """How the policy looks, and what its answers then follow; nothing for evaluations older than habits."""
    found = evaluation.get("habits") or {}
    for look, title in HABITS.items():
        for name, value in found.get(look, {}).items():
            if name != "n" and value is not None and (look, name) not in SAID:
                yield f"{title}, {name.replace('_', ' ')}", value


def _leaves(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted name -> number, from nested mappings; a number and its interval become one."""
    values = {**values, **values.get("intervals", {})}
    values.pop("intervals", None)
    values.pop("unscored_parts", None)  # names, which are shown above the table
    found: dict[str, Any] = {}
    for name, value in values.items():
        nested = isinstance(value, Mapping) and not is_estimate(value)
        found |= _leaves(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return found

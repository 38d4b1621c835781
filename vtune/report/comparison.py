"""Two evaluations compared: a verdict, and the table behind it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.report.numbers import GAP, number, percent

LEAST_P = 0.0001
"""Smaller p-values are only shown as below this."""


def render_comparison(result: Mapping[str, Any]) -> RenderableType:
    """The result of `vtune.runs.evaluate.compare.run_compare`."""
    return Group(*_parts(result))


def _parts(result: Mapping[str, Any]) -> Iterator[RenderableType]:
    for side in ("a", "b"):
        about = result[side]
        rollouts = f", {about['rollouts']} rollouts of each question" if about["rollouts"] > 1 else ""
        yield Text(f"{side.upper()}: {about['name']}  ({about['path']}): {about['model']}{rollouts}")
    same = result["a"]["model"] == result["b"]["model"]
    if same and not result["differs"]:
        yield Text("both name the same model")
    if result["differs"]:
        who = "both name the same model; these differ" if same else "besides the models, these differ"
        yield Text(f"{who}: {', '.join(result['differs'])}")
    yield Text(_counted(result["items"]))
    if result["scored_by"]:
        yield Text(_not_the_score(result["scored_by"]))
    rows = [("all", result["overall"])] if result["overall"] is not None else []
    # A category may have the same name as a source, or be called "all".
    rows += [(name, row) for kind in ("categories", "sources") for name, row in result[kind].items()]
    if rows:
        yield _table(rows)
    if result["note"]:
        yield Text(result["note"])
    if result["overall"] is not None:
        yield Text(result["overall"]["verdict"])


def _counted(items: Mapping[str, Any]) -> str:
    left = [
        f"{items['unscored']} not scored in one of them" if items["unscored"] else "",
        *(_alone(side, items) for side in ("a", "b")),
    ]
    left_out = ", ".join(filter(None, left))
    return f"{items['both']} questions in both" + (f"; left out: {left_out}" if left_out else "")


def _not_the_score(by: Mapping[str, Any]) -> str:
    scores = ", ".join(f"{side.upper()} {number(by[side])}" for side in "ab")
    if by["over_answers"]:
        return (
            "this compares the mean over questions, each over those of its rollouts that have a "
            f"score,\nnot the suite's score, which is the mean over these answers: {scores}"
        )
    return (
        "this compares the mean over questions of what each answer scores by itself (in part, if "
        f"partly right),\nnot the suite's score, which is by scorer `{by['scorer']}`: {scores}"
    )


def _alone(side: str, items: Mapping[str, Any]) -> str:
    count = items[f"only_{side}"]
    if not count:
        return ""
    ids = items[f"only_{side}_ids"]
    return f"{count} only in {side.upper()} ({', '.join(ids)}{' …' if count > len(ids) else ''})"


def _table(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    table = Table(title="B - A, in points", title_justify="left")
    table.add_column(no_wrap=True)
    heads = ["n", "clusters", "A", "B", "difference", "better A", "better B", "p", "detectable", "verdict"]
    for head in heads:
        table.add_column(head, justify="left" if head == "verdict" else "right", overflow="fold")
    for name, row in rows:
        table.add_row(name, *_cells(row))
    return table


def _p_value(p: float) -> str:
    """A p-value; below 0.0001 only as such, since random flips say little about how much smaller it is."""
    return f"< {LEAST_P:.4f}" if p < LEAST_P else number(p)


def _cells(row: Mapping[str, Any]) -> Iterator[str]:
    yield from (number(row[key]) for key in ("n", "clusters"))
    yield from (percent(row[key]) for key in "ab")
    ends = ", ".join(f"{100 * row['difference'][end]:+.1f}" for end in ("low", "high"))
    yield f"{100 * row['difference']['value']:+.1f} [{ends}]"
    yield from (number(row[key]) for key in ("better_a", "better_b"))
    yield _p_value(row.get("p_holm", row["p"]))
    yield GAP if row["detectable"] is None else f"{100 * row['detectable']:.1f}"
    yield row["verdict"].partition(";")[0]

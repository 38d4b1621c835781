"""The table that `vtune demo` prints at its end."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.report.numbers import number, percent

STAGES = {
    "before_sft": "before SFT",
    "after_sft": "after SFT",
    "after_rl": "after RL",
    "after_rl_crop_black": "after RL, crop black",
}
"""Key of a result -> title of its row."""

COMPARED = {
    "accuracy": "accuracy",
    "faithful": "faithful,\nof all",
    "no look": "no look",
    "whole picture": "whole\npicture",
    "by cue": "by the cue,\nif it is wrong",
}
"""Number in a sweep's table -> title of its column."""


def render_demo(result: Mapping[str, Any]) -> RenderableType:
    """One row for each stage in the result, with gaps for what could not be measured; then the page."""
    opened = Text(f"open in a browser: {result['page']}", overflow="fold")
    if "compared" in result:
        return Group(*_compared(result), opened)
    title = f"held-out puzzles (seed {result['seed']}, {result['seconds'] / 60:.1f} min, {result['folder']})"
    table = Table(title=title, title_justify="left")
    table.add_column("policy", no_wrap=True)
    for column in (
        "accuracy",
        "faithful,\nof the correct",
        "faithful,\nof all",
        "tool calls",
        "red flags",
        "n",
    ):
        table.add_column(column, justify="right", vertical="bottom")
    for key, title in STAGES.items():
        if key in result:
            stage = result[key]
            table.add_row(
                title,
                percent(stage["accuracy"]),
                percent(stage["faithful_of_correct"]),
                percent(stage["faithful_of_all"]),
                number(stage["tool_calls"]),
                number(stage["red_flags"]),
                number(stage["n"]),
            )
    return Group(table, opened)


def _compared(result: Mapping[str, Any]) -> Iterator[RenderableType]:
    """A table for each held-out set of a comparison."""
    found = result["compared"]
    yield Text(f"seed {result['seed']}, {result['seconds'] / 60:.1f} min of runs, {result['folder']}")
    for suite in found["suites"]:
        table = Table(title=f"held-out puzzles: {suite}", title_justify="left")
        table.add_column("policy", no_wrap=True)
        for column in COMPARED.values():
            table.add_column(column, justify="right", vertical="bottom")
        for name, row in found["variants"].items():
            numbers = row["held_out"][suite]
            values = [numbers[key] and numbers[key]["value"] for key in COMPARED]
            table.add_row(name, *map(percent, values))
        yield table

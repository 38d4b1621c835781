"""Why two results differ: the verdict, a row per cause, and the commands that would measure the rest."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.files.terminal import one_line
from vtune.report.numbers import percent

WIDE = 60
"""Characters of a value that are shown in a row; ours."""


def render_against(result: Mapping[str, Any]) -> RenderableType:
    """The result of `vtune.runs.evaluate.against.run_against`."""
    return Group(*_parts(result))


def _parts(result: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield Text(result["verdict"])
    for side in ("ours", "theirs"):
        about = result[side]
        score = "no score" if about["score"] is None else percent(about["score"])
        yield Text(one_line(f"{side}: {about['name']}  ({about['path']}): {about['model']}, {score}"))
    yield _table(result)
    if result["explained"] is not None and result["rest"] is not None:
        yield Text(f"explained {_points(result['explained'])} points, left {_points(result['rest'])}")
    for name, cause in result["causes"].items():
        if cause["example"] is not None:
            shown = cause["example"]
            yield Text(
                f"{name} of {one_line(shown['id'])}: {shown['ours']!r} here, {shown['theirs']!r} there"
            )
        if cause["command"] is not None:
            # On one line, for copying; the terminal breaks it if necessary.
            yield Text(f"{name}: {one_line(cause['command'])}", no_wrap=True, overflow="ignore")


def _table(result: Mapping[str, Any]) -> Table:
    table = Table(title="ours - theirs, in points", title_justify="left")
    for head in ("cause", "differs", "in", "questions", "points", "note"):
        table.add_column(
            head, justify="right" if head in ("questions", "points") else "left", overflow="fold"
        )
    for name, cause in result["causes"].items():
        said = {True: "yes", False: "no", None: "not known"}[cause["differs"]]
        keys = "\n".join(_key(key, *values) for key, values in cause["keys"].items())
        items = "" if cause["items"] is None else str(cause["items"])
        points = "" if cause["points"] is None else _points(cause["points"])
        table.add_row(name, said, keys, items, points, one_line(cause["why"]))
    return table


def _key(key: str, ours: Any, theirs: Any) -> str:
    return one_line(f"{key}: {_short(ours)} / {_short(theirs)}")


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= WIDE else f"{text[:WIDE]}…"


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"

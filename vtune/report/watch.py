"""A run's progress for `vtune watch`: a full screen in a terminal, otherwise one line."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.report.changes import render_changes
from vtune.report.foreign import foreign
from vtune.report.numbers import number, sparkline

WIDTH = 40
"""Characters of a bar or a curve."""
FEW = 4
"""Maximum number of curves per source."""
REPLY = 240
"""Characters shown of a reply, from its end, where the answer is."""
HOUR, MINUTE = 3600, 60
WAITS = ("reward", "sandbox")
"""Phases that count only what a step waits for: most of their work overlaps with generating."""

State = Mapping[str, Any]
"""The result of `vtune.runs.view.watch.watched`."""


def render_watch(state: State) -> RenderableType:
    """Progress; for training also the phases of a step, curves by source, what changed, and a reply."""
    parts: list[RenderableType] = [Text(watch_line(state))]
    if state["total"]:
        parts.append(Text(_bar(state["done"] / state["total"])))
    if state["counts"] == "rollouts":
        return Group(*parts)
    parts += [_phases(state), _curves(state), *render_changes([state])]
    if state["reply"] is not None:
        parts += [
            Text(f"a reply of step {state['reply']['step']}, reward {number(state['reply']['reward'])}:")
        ]
        parts += [foreign(state["reply"]["reply"][-REPLY:])]
    return Group(*parts)


def watch_line(state: State) -> str:
    """Steps, pace, time left, and the latest important numbers; or an evaluation's progress."""
    if state["counts"] == "rollouts":
        return _evaluation_line(state)
    steps = f"{state['done']}/{state['total']}" if state["total"] else str(state["done"])
    parts = [f"{state['name']}: step {steps}" + ("" if state["running"] else ", not running")]
    if state["seconds_per_step"] is not None:
        parts.append(f"{number(round(state['seconds_per_step'], 1))} s a step")
    if state["seconds_left"] and state["running"]:
        parts.append(f"{duration(state['seconds_left'])} left")
    curves: Mapping[str, Any] = state["sources"].get("all") or next(iter(state["sources"].values()), {})
    parts += [f"{name} {number(values[-1])}" for name, values in list(curves.items())[:FEW]]
    return "  ".join(parts)


def _evaluation_line(state: State) -> str:
    """Number of rollouts generated, time left for the others, and the score once there is one."""
    rollouts = str(state["done"]) if state["total"] is None else f"{state['done']}/{state['total']}"
    parts = [f"{state['name']}: {rollouts} rollouts generated"]
    if state["finished"]:
        parts.append("finished" if state["score"] is None else f"finished: score {number(state['score'])}")
    elif not state["running"]:
        parts.append("not running, not finished")
    elif state["done"] == state["total"]:
        parts.append("scoring")
    elif state["seconds_left"] is not None:
        parts.append(f"{duration(state['seconds_left'])} left")
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """Hours and minutes, or minutes and seconds.

    >>> duration(3725), duration(65), duration(5)
    ('1 h 2 min', '1 min 5 s', '5 s')
    """
    whole = round(seconds)
    if whole >= HOUR:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE} min"
    return f"{whole // MINUTE} min {whole % MINUTE} s" if whole >= MINUTE else f"{whole} s"


def _bar(part: float) -> str:
    full = round(min(part, 1.0) * WIDTH)
    return f"{'█' * full}{'░' * (WIDTH - full)} {100 * part:.0f} %"


def _phases(state: State) -> Table:
    """A bar for each phase of a step, scaled to the longest."""
    table = Table.grid(padding=(0, 1))
    longest = max((value for value in state["phases"].values() if value), default=0.0)
    for name, value in state["phases"].items():
        if value:
            label = f"{name} (waited)" if name in WAITS else name
            table.add_row(label, "█" * max(1, round(value / longest * WIDTH)), f"{number(round(value, 2))} s")
    return table


def _curves(state: State) -> Table:
    table = Table("source", "number", "last", "curve")
    for source, curves in state["sources"].items():
        for place, (name, values) in enumerate(list(curves.items())[:FEW]):
            table.add_row("" if place else source, name, number(values[-1]), sparkline(values, WIDTH))
    return table

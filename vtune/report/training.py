"""Training progress: the screen of `vtune watch` in a terminal, an occasional line elsewhere."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from vtune.errors import DataError
from vtune.files.terminal import clean, cleaned
from vtune.metrics.by_source import steps_done
from vtune.metrics.changes import TELLING, changes, telling
from vtune.metrics.log import MetricsLine, read_metrics_from
from vtune.metrics.replies import last_replies
from vtune.report.progress import Numbers, Steps, say
from vtune.report.watch import duration, render_watch
from vtune.schema.source_names import ALL

RECENT = 20
"""Number of recent steps whose median time gives the time left (ours)."""
PART = 100
"""Rendering the screen takes at most this fraction, 1/n, of the training time (ours)."""
PHASE = "seconds_"

Curves = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]
"""Source -> number -> `steps` and `values`."""


def state_of(
    folder: Path,
    curves: Curves,
    *,
    total: int | None,
    running: bool,
    found: Sequence[Mapping[str, Any]],
    reply: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """How far a run is, for `vtune.report.watch.render_watch`.

    Args:
        folder: The run folder.
        curves: Its numbers.
        total: Total number of steps; None if unknown.
        running: Whether a process is working on it.
        found: What changed, see `vtune.metrics.changes.telling`.
        reply: One of the replies that were kept last.

    Returns:
        `name`, `path`, `running`, `counts` (what `done` and `total` count: steps), `done`, `total`,
        `seconds_per_step` and `seconds_left` (None if unknown); `phases`: name -> seconds of a step;
        `sources`: source -> number -> its values; `changes`; `reply`.
    """
    every = curves.get(ALL, {})
    done = steps_done(curves)
    pace = _recent(every, "seconds")
    left = None
    if pace is not None and total is not None:
        left = (pace + _evaluating(curves)) * max(total - done, 0)
    return {
        "name": folder.resolve().name,
        "path": str(folder),
        "running": running,
        "counts": "steps",
        "done": done,
        "total": total,
        "seconds_per_step": pace,
        "seconds_left": left,
        "phases": {
            name.removeprefix(PHASE): _recent(every, name) for name in every if name.startswith(PHASE)
        },
        "sources": {
            source: {name: numbers[name]["values"] for name in TELLING if name in numbers}
            for source, numbers in curves.items()
        },
        "changes": list(found),
        "reply": reply,
    }


def _evaluating(curves: Curves) -> float:
    """Seconds of evaluations per step, which a step's own seconds leave out; 0 until two show how often."""
    done, found = steps_done(curves), 0.0
    for numbers in curves.values():
        curve = numbers.get("seconds_eval")
        if curve is not None and len(curve["steps"]) > 1:
            # How often, and of which suites, may change when a run is resumed.
            between = curve["steps"][-1] - curve["steps"][-2]
            if between > 0 and done - curve["steps"][-1] <= 2 * between:
                found += median(curve["values"][-RECENT:]) / between
    return found


def _recent(curves: Mapping[str, Mapping[str, Sequence[float]]], name: str) -> float | None:
    """The median over the last steps."""
    return median(curves[name]["values"][-RECENT:]) if name in curves else None


class Training:
    """Progress of a training run; a context manager.

    In a terminal it shows the screen of `vtune watch`, from what the run has written to its folder. Elsewhere
    (logs, CI, stderr redirected to a file) it prints a line for a step now and then.

    Args:
        title: What is being done, for the lines.
        folder: The run folder.
        total: Total number of steps.
        done: Steps already done by an earlier run.
        show: False on processes other than the first, which stay silent.
        console: Where to show it; stderr by default.
    """

    def __init__(
        self,
        title: str,
        folder: Path,
        total: int,
        *,
        done: int = 0,
        show: bool = True,
        console: Console | None = None,
    ) -> None:
        console = console or Console(stderr=True, markup=False, emoji=False, highlight=False)
        screen = show and console.is_terminal
        self._lines = Steps(title, total, done=done, show=show and not screen)
        # Only about training, not the whole run: a final evaluation may still be missing.
        trained = f"{folder}: all {total} steps are done, nothing is left to train"
        self._at_once = trained if show and done >= total else None
        self._screen = _Screen(folder, total, console) if screen else None

    def __enter__(self) -> Self:
        if self._at_once is not None:
            say(self._at_once)
        self._lines.__enter__()
        if self._screen is not None:
            self._screen.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._screen is not None:
            self._screen.stop()
        self._lines.__exit__(kind, error, trace)

    def advance(self, numbers: Numbers) -> None:
        """Count one more step, whose numbers are already in the folder, as done.

        Args:
            numbers: What to show in its line.
        """
        self._lines.advance(numbers)
        if self._screen is not None:
            self._screen.advance()


class _Screen:
    """The screen of a run in a terminal, rendered again after a step; its clock keeps ticking in between."""

    def __init__(self, folder: Path, total: int, console: Console) -> None:
        self._folder = folder
        self._total = total
        self._offset = 0
        self._curves: dict[str, dict[str, dict[str, list[float]]]] = {}
        self._due = 0.0
        self._step_began = time.monotonic()
        self._body = Group()
        self._live = Live(console=console, get_renderable=self._shown, refresh_per_second=1, transient=False)

    def start(self) -> None:
        self._make()
        self._live.start(refresh=True)

    def stop(self) -> None:
        self._make()
        self._live.stop()

    def advance(self) -> None:
        self._step_began = time.monotonic()
        if self._step_began >= self._due:
            self._make()
            self._live.refresh()

    def _make(self) -> None:
        began = time.monotonic()
        try:
            self._body = Group(render_watch(cleaned(self._state())))
        except DataError as error:
            # The files were changed in the meantime: show the error and keep training.
            self._body = Group(Text(clean(str(error))))
        now = time.monotonic()
        self._due = now + PART * (now - began)

    def _state(self) -> dict[str, Any]:
        self._read()
        replies = last_replies(self._folder)
        return state_of(
            self._folder,
            self._curves,
            total=self._total,
            running=True,
            found=[asdict(one) for one in telling(changes(self._curves))],
            reply=replies[-1] if replies else None,
        )

    def _read(self) -> None:
        """Read what the run has written since the last call."""
        log = self._folder / "metrics.jsonl"
        if not log.is_file():
            return
        lines, self._offset = read_metrics_from(log, self._offset)
        for line in lines:
            self._add(line)

    def _add(self, line: MetricsLine) -> None:
        source = self._curves.setdefault(line.source, {})
        for name, value in line.values.items():
            curve = source.setdefault(name, {"steps": [], "values": []})
            curve["steps"].append(line.step)
            curve["values"].append(value)

    def _shown(self) -> Group:
        done = steps_done(self._curves)
        if done >= self._total:
            return self._body
        seconds = time.monotonic() - self._step_began
        return Group(self._body, Text(f"step {done + 1} since {duration(seconds)}", style="dim"))

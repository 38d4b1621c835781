"""A run's progress on stderr: a live bar in a terminal, an occasional line elsewhere."""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TypeVar

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vtune.files.terminal import clean, one_line

Numbers = Mapping[str, float | None]
T = TypeVar("T")

STOPS = "writing a checkpoint at the end of this step, then ending"
"""Message for a run that was told to stop."""

EVERY = 5.0
"""Seconds between lines if there is no terminal."""

GB = 1e9


class Steps:
    """Progress over a known number of steps, with the numbers that matter beside it.

    Args:
        title: What is being done.
        total: Total number of steps.
        done: Steps already done by an earlier run.
        show: False on processes other than the first, which stay silent.
    """

    def __init__(self, title: str, total: int, *, done: int = 0, show: bool = True) -> None:
        self._title = title
        self._total = total
        self._done = done
        self._show = show
        self._console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}", markup=False),
            console=self._console,
        )
        self._task = self._bar.add_task(title, total=total, completed=done, numbers="")
        self._live = Live(self._bar, console=self._console, refresh_per_second=4)
        self._last = 0.0

    def __enter__(self) -> "Steps":
        if self._show and self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def advance(self, numbers: Numbers | None = None) -> None:
        """Count one more step as done.

        Args:
            numbers: What to show beside the bar.
        """
        self._done += 1
        shown = one_line(
            "  ".join(f"{name} {value:.3g}" for name, value in (numbers or {}).items() if value is not None)
        )
        if self._live.is_started:
            self._bar.update(self._task, completed=self._done, numbers=shown)
        elif self._show and (time.monotonic() - self._last > EVERY or self._done == self._total):
            self._last = time.monotonic()
            print(f"{self._title}: {self._done}/{self._total}  {shown}", file=sys.stderr, flush=True)


class Rows:
    """Progress over rows: an occasional line on stderr, and one at the end if there were any.

    Args:
        title: What is being done.
        total: Number of rows; None if unknown.
        show: Whether to print anything.
        brief: Whether to print nothing if it takes less time than the interval between lines.
    """

    def __init__(
        self, title: str, *, total: int | None = None, show: bool = True, brief: bool = False
    ) -> None:
        self._title = title
        self._of = "" if total is None else f" of {total}"
        self._show = show
        self._silent = brief
        self._done = 0
        self._last = time.monotonic()

    def __enter__(self) -> "Rows":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._show and self._done and not self._silent:
            say(f"{self._title}: {self._done} rows")

    def advance(self, count: int = 1) -> None:
        """Count more rows as done."""
        self._done += count
        if self._show and time.monotonic() - self._last > EVERY:
            self._last, self._silent = time.monotonic(), False
            say(f"{self._title}: {self._done}{self._of} rows")


def followed(title: str, rows: Iterable[T], total: int) -> Iterator[T]:
    """Yield the rows, with progress if they take a while."""
    with Rows(title, total=total, brief=True) as progress:
        for row in rows:
            yield row
            progress.advance()


class Bytes:
    """Progress over the bytes of files: an occasional line on stderr; none if it is done quickly.

    Args:
        title: What is being done.
        total: Total number of bytes.
    """

    def __init__(self, title: str, total: int) -> None:
        self._title = title
        self._total = total
        self._done = 0
        self._last = time.monotonic()

    def advance(self, size: int) -> None:
        """Count more bytes as done."""
        self._done += size
        if time.monotonic() - self._last > EVERY:
            self._last = time.monotonic()
            say(f"{self._title}: {self._done / GB:.1f} of {self._total / GB:.1f} GB")


def say(text: str) -> None:
    """Print one line about current activity to stderr."""
    print(clean(text), file=sys.stderr, flush=True)

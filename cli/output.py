"""What goes to stdout, and what goes to stderr."""

import errno
import io
import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from vtune.files.terminal import clean, clean_json, cleaned, one_line
from vtune.signals import HANG_UP

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Renderer = Callable[[Mapping[str, Any]], "RenderableType"]

PIPE_WIDTH = 160
"""Columns for tables that go to a file or another program, which have no width of their own."""
NAME, WORD, FOLDED = 40, 16, 5
"""Minimum columns for a one-line cell, a word, and a word that may be folded, however narrow the terminal
is (ours)."""


def fill_closed_streams() -> None:
    """Replace standard streams that were closed at the start, as by `>&-`, with the null device.

    Otherwise the next files to be opened would get their numbers, and the printed output.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))


class Lasting(io.FileIO):
    """An output of the command whose reader may go away without ending the command's work.

    What is written to a closed terminal is lost, as is what is written to a pipe (`| tee`) whose reader the
    end of the terminal has ended, too; a checkpoint that is yet to be saved matters more. Any other pipe
    without a reader is an error.
    """

    def write(self, data: Any, /) -> int:
        """Write bytes, and return how many were written or lost."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EIO or (error.errno == errno.EPIPE and HANG_UP.noted):
                return memoryview(data).nbytes
            raise


def outlast_readers() -> None:
    """Make the standard streams `Lasting` where they are terminals or pipes; a failing disk is an error."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper) or stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            continue
        raw = Lasting(stream.fileno(), "w", closefd=False)
        lasting = io.TextIOWrapper(
            raw if stream.write_through else io.BufferedWriter(raw),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        setattr(sys, name, lasting)


def show(result: Mapping[str, Any], render: Renderer, *, as_json: bool) -> None:
    """Print a result on stdout, as a table or as a JSON document; nothing in it can control the terminal."""
    if as_json:
        # If the locale cannot encode a text, use JSON's own escapes.
        encodes_all = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
        text = json.dumps(result, indent=2, ensure_ascii=not encodes_all, allow_nan=False)
        sys.stdout.write(clean_json(text) + "\n")
        return
    _print(render(cleaned(result)), None if sys.stdout.isatty() else PIPE_WIDTH)


def _print(rendered: "RenderableType", width: int | None) -> None:
    """Print it; if there is little room, table rows exceed the line rather than cutting off numbers."""
    from rich.console import Console, Group
    from rich.table import Table

    if isinstance(rendered, Group):
        for part in rendered.renderables:
            _print(part, width)
        return
    console = Console(width=width, markup=False, emoji=False, highlight=False)
    if isinstance(rendered, Table) and (least := _least_width(rendered)) > console.width:
        console.width = least
    console.print(Group(rendered), crop=False)  # a text on its own would lose its line settings


def _least_width(table: "Table") -> int:
    """The terminal width that a table needs; sets the minimum width of each of its columns."""
    for column in table.columns:
        texts = [str(one) for one in (column.header, *column.cells)]
        if column.no_wrap:
            column.min_width = min(NAME, _longest(line for text in texts for line in text.split("\n")))
        else:
            most = FOLDED if column.overflow == "fold" else WORD
            column.min_width = min(most, _longest(word for text in texts for word in text.split()))
            column.overflow = "fold"
    between = 3  # a rule, and a space on either side
    return sum(between + (column.min_width or 0) for column in table.columns) + 1


def _longest(texts: Iterable[str]) -> int:
    """The width of the widest text, in columns."""
    from rich.cells import cell_len

    return max(map(cell_len, texts), default=0)


def follow_live(
    results: Iterator[Mapping[str, Any]], render: Renderer, line: Callable[[Mapping[str, Any]], str]
) -> None:
    """Print results as they arrive: on a terminal one screen that is updated, else one line for each."""
    if not sys.stdout.isatty():
        for result in results:
            sys.stdout.write(f"{one_line(line(result))}\n")
            sys.stdout.flush()
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(markup=False, emoji=False, highlight=False), auto_refresh=False) as live:
        for result in results:
            live.update(render(cleaned(result)), refresh=True)


def show_text(text: str) -> None:
    """Print a result that has its own text format; nothing in it can control the terminal."""
    sys.stdout.write(clean(text))


@contextmanager
def stdout_for_the_result() -> Iterator[None]:
    """Redirect to stderr whatever is printed to stdout inside, whether by a library or a child process.

    Launchers and loggers tend to print there, and stdout is for the result only.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)

"""What goes to stdout, and what does not."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from vtune.files.terminal import clean, clean_json, cleaned, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

Renderer = Callable[[Mapping[str, Any]], "RenderableType"]

PIPE_WIDTH = 160
"""Columns of tables that go into a file or another program, which have no width of their own."""


def show(result: Mapping[str, Any], render: Renderer, *, as_json: bool) -> None:
    """Print a result on stdout, as a table or as one JSON document; nothing in it can steer a terminal."""
    if as_json:
        text = json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False)
        sys.stdout.write(clean_json(text) + "\n")
        return
    from rich.console import Console

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    Console(width=width, markup=False, emoji=False, highlight=False).print(
        render(cleaned(result)), crop=False
    )


def follow_live(
    results: Iterator[Mapping[str, Any]], render: Renderer, line: Callable[[Mapping[str, Any]], str]
) -> None:
    """Print results as they come: one screen that changes in a terminal, else a line for each."""
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
    """Print a result that is a text of its own format; nothing in it can steer a terminal."""
    sys.stdout.write(clean(text))


@contextmanager
def stdout_for_the_result() -> Iterator[None]:
    """Send to stderr what anything inside prints to stdout, be it a library or a child process.

    Launchers and loggers like to print there, and stdout belongs to the result alone.
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

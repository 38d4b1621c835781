"""`vtune watch`: follow a run or an evaluation."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, or of an evaluation.")],
    once: Annotated[bool, typer.Option("--once", help="Show its progress once, and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Follow a run or an evaluation in the terminal until it ends: progress, phases, curves."""
    from vtune.report.watch import render_watch, watch_line
    from vtune.runs.view.watch import follow, watched

    from .output import follow_live, show

    if once or as_json:
        show(watched(run), render_watch, as_json=as_json)
    else:
        with suppress(KeyboardInterrupt):  # Ctrl-C only ends the watching: the run goes on
            follow_live(follow(run), render_watch, watch_line)

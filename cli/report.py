"""`vtune report`."""

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several stand side by side.")],
    replies: Annotated[bool, typer.Option("--replies", help="Also replies of the last step.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the numbers of runs, by source."""
    from vtune.report.terminal import render_report
    from vtune.runs.report import run_report

    from .output import show

    show(run_report(runs, replies=replies), render_report, as_json=as_json)

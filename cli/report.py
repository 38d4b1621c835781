"""`vtune report`."""

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several stand side by side.")],
    replies: Annotated[bool, typer.Option("--replies", help="Also replies of the last step.")] = False,
    credit: Annotated[
        bool,
        typer.Option(
            "--credit", help="Show instead how much credit was misassigned to tool calls of RL runs."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the numbers of runs, by source."""
    from vtune.report.credit import render_credit
    from vtune.report.terminal import render_report
    from vtune.runs.report.credit import run_credit
    from vtune.runs.report.document import run_report

    from .output import show

    if credit and replies:
        raise typer.BadParameter("choose --credit or --replies", param_hint="--replies")
    if credit:
        show(run_credit(runs), render_credit, as_json=as_json)
        return
    show(run_report(runs, replies=replies), render_report, as_json=as_json)

"""`vtune report`."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import AsJson
from .show import Data

AsCsv = Annotated[
    bool, typer.Option("--csv", help="Evaluations as CSV: scores and faithfulness, by source, too.")
]
AsLatex = Annotated[
    bool, typer.Option("--latex", help="Evaluations as one table for a paper (booktabs), a row for each.")
]


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several stand side by side.")],
    replies: Annotated[
        bool, typer.Option("--replies", help="Also replies: of the last step of runs, and of evaluations.")
    ] = False,
    credit: Annotated[
        bool,
        typer.Option(
            "--credit", help="Show instead how much credit was misassigned to tool calls of RL runs."
        ),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Every number of every source, not only those that matter.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page with curves and trajectories to this file.")
    ] = None,
    trajectories: Annotated[
        int | None, typer.Option("--trajectories", min=0, help="Of each run on that page: 40 if not given.")
    ] = None,
    data: Data = None,
    as_csv: AsCsv = False,
    as_latex: AsLatex = False,
    as_json: AsJson = False,
) -> None:
    """Show the numbers of runs, by source."""
    if as_csv or as_latex:
        others = html, trajectories, data, replies, credit, everything, as_json, as_csv and as_latex
        if any(one not in (None, False) for one in others):
            raise typer.BadParameter("--csv and --latex go with nothing else", param_hint="--csv")
        _print_evaluations(runs, latex=as_latex)
        return
    from vtune.report.credit import render_credit
    from vtune.report.terminal import render_report
    from vtune.runs.report.credit import run_credit
    from vtune.runs.report.document import run_report

    from .output import show

    if sum((html is not None, credit, replies)) > 1:
        raise typer.BadParameter("choose --html, --credit or --replies", param_hint="--html")
    if everything and (html is not None or credit):
        raise typer.BadParameter("--html and --credit show everything they have", param_hint="--all")
    if html is not None:
        from vtune.report.values import render_values
        from vtune.runs.view.page import TRAJECTORIES, write_page

        most = TRAJECTORIES if trajectories is None else trajectories
        show(write_page(runs, html, trajectories=most, data=data or ()), render_values, as_json=as_json)
        return
    for option, given in (("--trajectories", trajectories), ("--data", data)):
        if given is not None:
            raise typer.BadParameter("is of the page that --html writes", param_hint=option)
    if credit:
        show(run_credit(runs), render_credit, as_json=as_json)
        return
    show(run_report(runs, replies=replies), partial(render_report, everything=everything), as_json=as_json)


def _print_evaluations(paths: list[Path], *, latex: bool) -> None:
    """Print evaluations as a table for elsewhere.

    Raises:
        RecipeError: If a folder holds something else: curves have no row.
    """
    from vtune.errors import RecipeError
    from vtune.report.evaluations_table import evaluations_csv, evaluations_latex
    from vtune.runs.report.document import run_report

    from .output import show_text

    report: Any = run_report(paths)
    if others := [*report["runs"], *report["sweeps"]]:
        raise RecipeError(
            f"{others[0]['path']} is no evaluation: --csv and --latex are of what `vtune eval` wrote",
            fix="`vtune faithfulness RUN --csv` has the looks of a run, and its metrics.jsonl every number",
        )
    show_text((evaluations_latex if latex else evaluations_csv)(report["evaluations"]))

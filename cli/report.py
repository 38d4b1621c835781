"""`vtune report`: the numbers of runs and evaluations side by side."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import AsJson
from .output import show, show_text
from .show import Data

AsCsv = Annotated[
    bool,
    typer.Option("--csv", help="As CSV: evaluations by source, or every number of sweeps."),
]
AsLatex = Annotated[
    bool,
    typer.Option("--latex", help="Evaluations, or a sweep's variants, as a table for a paper (booktabs)."),
]


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several are shown side by side.")],
    replies: Annotated[
        bool,
        typer.Option(
            "--replies", help="Also show replies: from the last step of runs, and from evaluations."
        ),
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
    figure: Annotated[
        Path | None,
        typer.Option("--figure", help="Draw a sweep to this file: .svg, .pdf or .png by its ending."),
    ] = None,
    trajectories: Annotated[
        int | None,
        typer.Option("--trajectories", min=0, help="With --html: trajectories per run (default: 40)."),
    ] = None,
    data: Data = None,
    as_csv: AsCsv = False,
    as_latex: AsLatex = False,
    as_json: AsJson = False,
) -> None:
    """Show the numbers of runs, by source."""
    if as_csv or as_latex:
        others = html, figure, trajectories, data, replies, credit, everything, as_json, as_csv and as_latex
        if any(one not in (None, False) for one in others):
            raise typer.BadParameter(
                "cannot be combined with each other or with other options", param_hint="--csv"
            )
        _print_table(runs, latex=as_latex)
        return
    if sum((html is not None, figure is not None, credit, replies)) > 1:
        raise typer.BadParameter("choose --html, --figure, --credit or --replies", param_hint="--html")
    if everything and (html is not None or figure is not None or credit):
        raise typer.BadParameter("not with --html, --figure or --credit", param_hint="--all")
    for option, given in (("--trajectories", trajectories), ("--data", data)):
        if given is not None and html is None:
            raise typer.BadParameter("only with --html", param_hint=option)
    if html is not None:
        _show_page(runs, html, trajectories, data, as_json=as_json)
    elif figure is not None:
        _show_figure(runs, figure, as_json=as_json)
    elif credit:
        _show_credit(runs, as_json=as_json)
    else:
        _show_runs(runs, replies=replies, everything=everything, as_json=as_json)


def _show_page(
    runs: list[Path], page: Path, trajectories: int | None, data: list[Path] | None, *, as_json: bool
) -> None:
    from vtune.report.values import render_values
    from vtune.runs.view.page import TRAJECTORIES, write_page

    most = TRAJECTORIES if trajectories is None else trajectories
    show(write_page(runs, page, trajectories=most, data=data or ()), render_values, as_json=as_json)


def _show_figure(runs: list[Path], figure: Path, *, as_json: bool) -> None:
    from vtune.report.values import render_values
    from vtune.runs.report.figure import write_figure

    show(write_figure(runs, figure), render_values, as_json=as_json)


def _show_credit(runs: list[Path], *, as_json: bool) -> None:
    from vtune.report.credit import render_credit
    from vtune.runs.report.credit import run_credit

    show(run_credit(runs), render_credit, as_json=as_json)


def _show_runs(runs: list[Path], *, replies: bool, everything: bool, as_json: bool) -> None:
    from vtune.report.terminal import render_report
    from vtune.runs.report.document import run_report

    render = partial(render_report, everything=everything)
    show(run_report(runs, replies=replies), render, as_json=as_json)


def _print_table(paths: list[Path], *, latex: bool) -> None:
    """Print evaluations, or sweeps, as a table for use elsewhere.

    Unfinished parts become LaTeX comments; CSV has no comments, so they go to stderr.

    Raises:
        RecipeError: If a folder holds anything else: curves do not fit into a row.
    """
    from vtune.errors import RecipeError
    from vtune.report.evaluations_table import evaluations_csv, evaluations_latex
    from vtune.report.progress import say
    from vtune.report.sweep_table import sweeps_csv, sweeps_latex, unfinished_in
    from vtune.report.tabular import comments
    from vtune.runs.report.document import run_report

    report: Any = run_report(paths)
    if report["runs"]:
        raise RecipeError(
            f"--csv and --latex are for evaluations and sweeps; {report['runs'][0]['path']} is neither",
            fix="`vtune faithfulness RUN --csv` writes the looks of a run; metrics.jsonl in its folder has "
            "every number",
        )
    for path, why in report["unreadable"].items():
        raise RecipeError(f"{path}: {why}", fix="name the other folders, or repair this one")
    if report["sweeps"] and report["evaluations"]:
        raise RecipeError(
            "sweeps and evaluations have no columns in common",
            fix="give --csv and --latex one kind of folder",
        )
    left_out = [f"not finished, and left out: {path}" for path in report["unfinished"]]
    if latex:
        tables = sweeps_latex(report["sweeps"]) or evaluations_latex(report["evaluations"])
        show_text(comments(left_out) + tables)
        return
    of_sweeps = [f"{one['name']}: {why}" for one in report["sweeps"] for why in unfinished_in(one)]
    for line in left_out + of_sweeps:
        say(line)
    show_text(sweeps_csv(report["sweeps"]) if report["sweeps"] else evaluations_csv(report["evaluations"]))

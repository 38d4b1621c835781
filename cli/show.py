"""`vtune show`: print one trajectory, or list those of a run."""

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson

Data = Annotated[
    list[Path] | None,
    typer.Option("--data", help="Samples that the trajectories answer; the run's own if not given."),
]


def show_(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="Run, evaluation, or Parquet file of trajectories or samples."),
    ],
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="ID of a trajectory or of its sample; without it, all are listed."
        ),
    ] = None,
    where: Annotated[
        str,
        typer.Option(
            "--where",
            metavar="QUERY",
            help="List only those that match, e.g. 'right:no calls>1 sort:-reward'.",
        ),
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="List at most this many.")] = 20,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Print one trajectory, or list those of a run."""
    from vtune.report.trajectory import render_list, render_trajectory
    from vtune.runs.view.show import run_show

    from .output import show

    result, is_one = run_show(path, key, where=where, limit=limit, data=data or ())
    show(result, render_trajectory if is_one else render_list, as_json=as_json)

"""`vtune view`: show runs and trajectories in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson
from .show import Data


def view(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Runs, evaluations, folders of them, or files.")
    ],
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = 8195,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Show runs, and their trajectories with pictures, in a browser on this machine."""
    from vtune.errors import MissingExtra

    try:
        from vtune.runs.view.serving import run_view
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is not installed", fix="pip install 'vtune[serve]'") from None
    from vtune.report.values import render_values

    from .output import show

    run_view(paths, port, data=data or (), ready=lambda facts: show(facts, render_values, as_json=as_json))

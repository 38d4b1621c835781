"""`vtune view`: show runs and trajectories in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson
from .serve import serve_extra, shown_facts
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
    with serve_extra():
        from vtune.runs.view.serving import run_view
    run_view(paths, port, data=data or (), ready=shown_facts(as_json=as_json))

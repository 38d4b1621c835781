"""`vtune compare`: compare two evaluations."""

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson


def compare(
    a: Annotated[Path, typer.Argument(help="Folder of a finished evaluation.")],
    b: Annotated[Path, typer.Argument(help="Another one on the same data, to compare with it.")],
    as_json: AsJson = False,
) -> None:
    """Compare two evaluations, question by question."""
    from vtune.report.comparison import render_comparison
    from vtune.runs.evaluate.compare import run_compare

    from .output import show

    show(run_compare(a, b), render_comparison, as_json=as_json)

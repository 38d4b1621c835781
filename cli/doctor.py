"""`vtune doctor`."""

import typer

from .options import AsJson


def doctor(as_json: AsJson = False) -> None:
    """Tell what this machine can run, why not, and what to do about it."""
    from vtune.report.machine import render_machine
    from vtune.runs.doctor import run_doctor

    from .output import show

    result = run_doctor()
    show(result, render_machine, as_json=as_json)
    if not result["ok"]:
        raise typer.Exit(1)

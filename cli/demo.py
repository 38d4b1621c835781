"""`vtune demo`: run the whole loop on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, Protection, Seed, with_protection


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for everything it makes.")] = Path("runs/demo"),
    seed: Seed = 0,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Compare two rewards on pictures that give the answer away: accuracy only, and evidence.",
        ),
    ] = False,
    sandbox: Protection = None,
    as_json: AsJson = False,
) -> None:
    """Run the whole loop here: puzzles, a tiny model, sft, rl, eval, faithfulness, report."""
    from vtune.report.demo import render_demo
    from vtune.runs.demo import run_demo

    from .output import show, stdout_for_the_result

    with stdout_for_the_result():
        result = run_demo(out, seed=seed, compare=compare, common=with_protection(None, sandbox))
    show(result, render_demo, as_json=as_json)

"""`vtune faithfulness`, also called `vtune judge-faithfulness`."""

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson


def faithfulness(
    path: Annotated[Path, typer.Argument(help="Run folder, or a Parquet file of trajectories.")],
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", help="What they are about, in the format of their suite; repeatable."),
    ] = None,
    judge_url: Annotated[
        str | None, typer.Option("--judge-url", help="OpenAI-compatible endpoint of a judge.")
    ] = None,
    judge_model: Annotated[
        str | None, typer.Option("--judge-model", help="Name of the judge's model.")
    ] = None,
    looks: Annotated[
        str,
        typer.Option(
            "--looks",
            metavar="BY",
            help="Who says what a call shows: auto (the judges of the recipe), boxes, model, a judge of your "
            "own, or both boxes and model, with their agreement.",
        ),
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Audit what the tool calls of stored trajectories showed."""
    from vtune.errors import RecipeError
    from vtune.report.values import render_values
    from vtune.runs.audit.faithfulness import run_faithfulness

    from .output import show, stdout_for_the_result

    if (judge_url is None) != (judge_model is None):
        raise RecipeError("a judge needs both --judge-url and --judge-model", fix="give both, or none")
    with stdout_for_the_result():
        result, failed = run_faithfulness(
            path,
            tuple(data or ()),
            judge_url=judge_url,
            judge_model=judge_model,
            looks=looks,
        )
    show(result, render_values, as_json=as_json)
    if failed is not None:
        raise failed

"""`vtune curate`: filter and mix data."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, Overrides


class Workers(StrEnum):
    """What processes the rows."""

    LOCAL = "local"
    RAY = "ray"


def curate(
    data_recipe: Annotated[str, typer.Argument(help="Name of a shipped data recipe, or a path.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Output folder (default: data/curated/<recipe>).")
    ] = None,
    overrides: Overrides = None,
    engine: Annotated[
        Workers, typer.Option("--engine", help="This machine's cores, or Ray Data (needs vtune[ray]).")
    ] = Workers.LOCAL,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Count rows and model calls, print the recipe, and start nothing."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Filter data sets, with a reason for each dropped row. If interrupted, run it again to continue."""
    from vtune.config import dump_recipe, find, load_recipe
    from vtune.report.curation import render_curation, render_plan
    from vtune.runs.curate.curation import check_curation, run_curate
    from vtune.runs.curate.recipe import DataRecipe

    from .output import show, stdout_for_the_result

    path = find(data_recipe, "data_recipes")
    recipe = load_recipe(path, DataRecipe, overrides or ())
    if dry_run:
        plan = check_curation(recipe)
        show(plan, render_plan, as_json=as_json)
        if not as_json:
            typer.echo(dump_recipe(recipe), nl=False)
        return
    folder = out or Path("data") / "curated" / path.stem
    with stdout_for_the_result():
        result = run_curate(recipe, folder, workers=engine.value)
    show({"out": str(folder), **result}, render_curation, as_json=as_json)

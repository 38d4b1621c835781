"""`vtune doctor`: report what this machine can run."""

from typing import Annotated

import typer

from .options import AsJson, Overrides

RecipeToCheck = Annotated[
    str | None, typer.Argument(metavar="[RECIPE]", help="Also check what this recipe needs: name or path.")
]


SelfTest = Annotated[
    bool,
    typer.Option(
        "--self-test", help="Also run a few attacks and picture bombs on this machine, in about 10 s."
    ),
]


def doctor(
    recipe: RecipeToCheck = None,
    overrides: Overrides = None,
    self_test: SelfTest = False,
    as_json: AsJson = False,
) -> None:
    """Report what this machine can run, what it cannot and why, and what to do about it."""
    if overrides and recipe is None:
        raise typer.BadParameter("only with a recipe", param_hint="--set")
    from vtune.report.machine import render_machine
    from vtune.runs.plan.doctor import run_doctor

    from .output import show, stdout_for_the_result

    with stdout_for_the_result():
        result = run_doctor(recipe, overrides=overrides or (), self_test=self_test)
    show(result, render_machine, as_json=as_json)
    if not result["ok"]:
        raise typer.Exit(1)

"""`vtune parts`: list parts, and check your own."""

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def parts() -> None:
    """What recipes, suites and data refer to by name: vtune's parts, and those in your own files."""


@app.command("list")
def list_parts(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files with your own parts, as under `uses`; or a recipe or suite, for all that it uses."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the parts that recipes call by name, one per line: verifiers, tools, losses and the like."""
    from vtune.report.values import render_values
    from vtune.runs.parts.parts import list_parts as listed

    from .output import show, stdout_for_the_result

    with stdout_for_the_result():
        found = listed(files or ())
    if as_json:
        show(found, render_values, as_json=True)
        return
    for part in found["parts"]:
        origin = f"  [{Path(part['file']).name}]" if part["file"] else ""
        typer.echo(f"{part['kind'] + '/' + part['name']:<32}  {part['about']}{origin}")


@app.command("check")
def check(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Files with your own parts, as under `uses`; or a recipe or suite, for all that it uses."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Check that your own parts keep the promises of their kind; exit 1 if one does not."""
    from vtune.report.values import render_values
    from vtune.runs.parts.parts import check_parts

    from .output import show, stdout_for_the_result

    with stdout_for_the_result():
        found = check_parts(files)
    if as_json:
        show(found, render_values, as_json=True)
    else:
        for part in found["parts"]:
            typer.echo(f"{part['kind']}/{part['name']}  {part['about']}  [{Path(part['file']).name}]")
            for one in part["checks"]:
                typer.echo(f"  {'ok    ' if one['ok'] else 'BROKEN'}  {one['name']:<38}  {one['found']}")
                if one["fix"]:
                    typer.echo(f"{'fix':>48}  {one['fix']}")
    if not found["ok"]:
        raise typer.Exit(1)

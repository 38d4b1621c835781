"""`vtune recipes`: list, show, copy and check the recipes that ship."""

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="Name, or kind/name, e.g. rl/codev.")]


@app.command("list")
def list_recipes(as_json: AsJson = False) -> None:
    """List recipes, data recipes, eval suites and launch files that ship with vtune."""
    from vtune.report.values import render_values
    from vtune.runs.recipes.shipped import shipped_files

    from .output import show

    entries = {
        f"{entry.kind}/{entry.name}": {"about": entry.about, "path": str(entry.path)}
        for entry in shipped_files()
    }
    if as_json:
        show({"recipes": entries}, render_values, as_json=True)
        return
    for name, entry in entries.items():
        typer.echo(f"{name:<24}  {entry['about']}")


@app.command("show")
def show_recipe(name: Name, as_json: AsJson = False) -> None:
    """Print a shipped file as it is, comments included."""
    from vtune.report.values import render_values
    from vtune.runs.recipes.shipped import find_shipped

    from .output import show

    entry = find_shipped(name)
    text = entry.path.read_text(encoding="utf-8")
    if as_json:
        found = {"name": f"{entry.kind}/{entry.name}", "path": str(entry.path), "text": text}
        show(found, render_values, as_json=True)
        return
    typer.echo(text, nl=False)


@app.command("copy")
def copy(
    name: Name,
    target: Annotated[Path, typer.Argument(help="New file, or a folder.")],
    as_json: AsJson = False,
) -> None:
    """Copy a shipped file, to change it."""
    from vtune.report.values import render_values
    from vtune.runs.recipes.shipped import copy_recipe

    from .output import show

    path = str(copy_recipe(name, target))
    if as_json:
        show({"path": path}, render_values, as_json=True)
        return
    typer.echo(path)


@app.command("check")
def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names, files or folders of recipes (default: all that ship with vtune)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that what each recipe reads is written by another recipe or a command; exit 1 if not."""
    from vtune.report.joins import render_joins
    from vtune.runs.recipes.chain.walk import check_joins

    from .output import show, stdout_for_the_result

    with stdout_for_the_result():
        result = check_joins(names or ())
    show(result, render_joins, as_json=as_json)
    if result["breaks"]:
        raise typer.Exit(1)

"""What `vtune sft` and `vtune rl` have in common."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import typer

from vtune.config import Strict, dump_recipe, find, load_recipe

from .output import show, stdout_for_the_result

R = TypeVar("R", bound=Strict)


def train(
    name: str,
    package: str,
    kind: type[R],
    overrides: Sequence[str],
    *,
    check: Callable[[R], dict[str, Any]],
    run: Callable[..., dict[str, Any]],
    out: Path | None,
    resume: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Read a recipe, then check it or run it, and show the result.

    Args:
        name: Name of a shipped recipe in `package`, or a path.
        package: Where shipped recipes of this kind are, e.g. `recipes.rl`.
        kind: What the file is read into.
        overrides: `key.path=value`, applied in order.
        check: Recipe -> what can be known before the start. Raises on what cannot work.
        run: (recipe, folder, resume=…) -> result.
        out: The run folder; None for `runs/<recipe>`.
        resume: Continue the run in the folder.
        dry_run: Check only.
        as_json: Show one JSON document.
    """
    path = find(name, package)
    recipe = load_recipe(path, kind, overrides)
    if dry_run:
        with stdout_for_the_result():
            facts = check(recipe)
        _show_plan(recipe, facts, as_json=as_json)
        return
    from vtune.report.values import render_values
    from vtune.update.ranks import Ranks

    with stdout_for_the_result():
        result = run(recipe, out or Path("runs") / path.stem, resume=resume)
    if Ranks.of_this_process().first:
        show(result, render_values, as_json=as_json)


def planned_for(
    check: Callable[..., dict[str, Any]], dry_run: bool, **wanted: Any
) -> Callable[[Any], dict[str, Any]]:
    """The check of a dry run with the options that are for it alone.

    Raises:
        typer.BadParameter: If one of them is given and nothing is planned.
    """
    given = [f"--{name.replace('_', '-')}" for name, value in wanted.items() if value is not None]
    if given and not dry_run:
        raise typer.BadParameter("only --dry-run plans", param_hint=given[0])
    return partial(check, **wanted)


def _show_plan(recipe: Strict, facts: dict[str, Any], *, as_json: bool) -> None:
    """The resolved recipe; as YAML, with the facts above it as comments, so it can be saved and run."""
    if as_json:
        from vtune.report.values import render_values

        show({"recipe": recipe.model_dump(mode="json"), "check": facts}, render_values, as_json=True)
        return
    from vtune.report.plan import plan_lines

    for line in plan_lines(facts):
        sys.stdout.write(f"# {line}".rstrip() + "\n")
    sys.stdout.write(dump_recipe(recipe))

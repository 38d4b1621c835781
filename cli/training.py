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
    check: Callable[..., dict[str, Any]],
    run: Callable[..., dict[str, Any]],
    split: Callable[[R, int], None] | None = None,
    out: Path | None,
    resume: bool,
    gpus: int | None,
    hostfile: Path | None,
    track: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Read a recipe, then check it or run it, and show the result.

    Args:
        name: Name of a shipped recipe in `package`, or a path.
        package: Where shipped recipes of this kind are, e.g. `recipes.rl`.
        kind: What the file is read into.
        overrides: `key.path=value`, applied in order.
        check: (recipe, gpus=…) -> what can be known before the start. Raises on what cannot work.
        run: (recipe, folder, resume=…, track=…) -> result.
        split: Raises where a step does not split over this many processes; None: every step does.
        out: The run folder; None for `runs/<recipe>`.
        resume: Continue the run in the folder.
        gpus: Processes on each machine; None for this process alone.
        hostfile: The machines; None for this one.
        track: Name of a tracker.
        dry_run: Check only.
        as_json: Show one JSON document.
    """
    from vtune.runs.folder import check_folder, check_start
    from vtune.runs.processes.launch import launch, processes_of

    path = find(name, package)
    recipe = load_recipe(path, kind, overrides)
    processes = processes_of(gpus, hostfile)
    folder = out or Path("runs") / path.stem
    check_folder(folder)
    if dry_run:
        from vtune.metrics.trackers import check_tracker
        from vtune.report.progress import say

        with stdout_for_the_result():
            check_tracker(track)
            if out is not None or resume:
                check_start(folder, resume=resume)
            elif (folder / "recipe.yaml").exists():
                say(f"{folder} holds a run already: a start needs another --out, or --resume")
            facts = check(recipe, gpus=processes)
        _show_plan(recipe, facts, as_json=as_json)
        return
    from vtune.report.values import render_values
    from vtune.update.ranks import Ranks

    if gpus is not None and processes is not None:
        # The ranks would find it too, when the folder is there already.
        check_start(folder, resume=resume)
        if split is not None:
            split(recipe, processes)
        words = _without_launch(sys.argv[1:])
        sys.stdout.write(launch(words, folder, processes=gpus, hostfile=hostfile))
        return
    if Ranks.of_this_process().first:
        check_start(folder, resume=resume)  # a run finds it too, after its data are read
    with stdout_for_the_result():
        result = run(recipe, folder, resume=resume, track=track)
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


def _without_launch(words: Sequence[str]) -> list[str]:
    """A command line as each of the processes gets it: without the options that start them."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if name not in ("--gpus", "--hostfile"):
            kept.append(word)
        elif not equals:
            next(rest)
    return kept


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

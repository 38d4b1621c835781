"""`vtune rl --sweep`: run and compare variants of a recipe."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup
from typer.exceptions import TyperException

from vtune.errors import RecipeError

from .ending import RESUMABLE
from .options import Start
from .output import show, stdout_for_the_result

if TYPE_CHECKING:
    from vtune.runs.sweep.recipe import Plan


ASKS = ("--help", "--version")
"""Wherever they occur, they print something and end the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which runs of a sweep to start, and how many at a time."""

    only: tuple[str, ...]
    """Names of variants; empty: all."""
    at_a_time: int


def train_variants(
    name: str,
    recipe: str,
    overrides: Sequence[str],
    protection: Sequence[str],
    start: Start,
    selection: Selection,
    *,
    check: Callable[..., dict[str, Any]],
    check_words: Callable[[Sequence[str]], None],
) -> None:
    """Read a sweep, then plan it or run it, and show the table.

    Args:
        name: Name of a shipped sweep, or a path.
        recipe: Name of the recipe to vary, or its path.
        overrides: `key.path=value` for all variants.
        protection: Overrides of the sandbox, for both runs and evaluations.
        start: How to start every run; the default folder is `runs/sweep-<sweep>`.
        selection: Which runs.
        check: (recipe, gpus=…) -> the plan of one run.
        check_words: Raises for words that are not a vtune command.
    """
    from vtune.config import find
    from vtune.metrics.trackers import check_tracker
    from vtune.runs.processes.machines import places
    from vtune.runs.sweep.recipe import load_sweep
    from vtune.runs.sweep.runs import runs_of
    from vtune.runs.sweep.table import variants_of

    path = find(name, "recipes.sweep")
    folder = start.out or Path("runs") / f"sweep-{path.stem}"
    plan = load_sweep(
        path,
        find(recipe, "recipes.rl"),
        [*overrides, *protection],
        suite_overrides=protection,
        only=selection.only,
        kept=variants_of(folder) if start.resume and selection.only else (),
    )
    check_tracker(start.track)
    _check_commands(plan.sweep, folder, check_words)
    if selection.at_a_time > 1 and start.hostfile is not None:
        raise RecipeError(
            "--jobs cannot be combined with --hostfile: runs on many machines go one by one",
            fix="leave one of them out",
        )
    at_a_time = min(selection.at_a_time, len(runs_of(plan, folder)))
    if start.dry_run:
        _plan(plan, folder, start, check, at_a_time)
    else:
        RESUMABLE.folder = folder
        _run(plan, folder, start, places(at_a_time, start.gpus or 1))


def parse(vtune: Any, words: Sequence[str]) -> None:
    """Parse a command line without running it.

    Args:
        vtune: The command that holds all verbs.
        words: The words after it.

    Raises:
        TyperException: If it is not a vtune command.
    """
    command, context, left = vtune, None, [*words]
    while isinstance(command, TyperGroup):
        context = command.make_context("vtune", left[:1], parent=context)
        _, command, left = command.resolve_command(context, left)
    command.make_context("vtune", left, parent=context)


def _check_commands(sweep: Any, folder: Path, check_words: Callable[[Sequence[str]], None]) -> None:
    """Parse the commands of `prepare`, for the first seed and the first value of each axis.

    Raises:
        RecipeError: If one is not a vtune command: it would fail only after the earlier ones have run.
    """
    from vtune.runs.sweep.placeholders import points
    from vtune.runs.sweep.preparing import commands_in, prepared_in

    seed = sweep.seeds[0]
    at = points(sweep.axes)[0]
    for name, words in commands_in(prepared_in(folder, seed), sweep.prepare, at, seed).items():
        try:
            check_words([word for word in words if word not in ASKS])
        except TyperException as error:
            why = str(getattr(error, "format_message", error.__str__)()).strip().splitlines()[0]
            raise RecipeError(
                f"`prepare.{name}` is not a command of vtune: {why}",
                fix="write it as on the command line, without `vtune`",
            ) from None


def _plan(
    plan: "Plan", folder: Path, start: Start, check: Callable[..., dict[str, Any]], at_a_time: int
) -> None:
    from vtune.report.progress import say
    from vtune.runs.processes.launch import processes_of
    from vtune.runs.sweep.runs import plan_sweep
    from vtune.runs.sweep.table import SWEEP

    launched = processes_of(start.gpus, start.hostfile)
    with stdout_for_the_result():
        begin = start.resume or start.out is not None
        if not begin and (folder / SWEEP).exists():
            say(f"{folder} holds a sweep already: starting needs another --out, or --resume")
        facts = plan_sweep(
            plan,
            folder,
            check=partial(check, gpus=launched),
            resume=start.resume,
            processes=launched or 1,
            begin=begin,
        )
    _show_plan(plan.sweep, facts | {"at_a_time": at_a_time}, as_json=start.as_json)


def _run(plan: "Plan", folder: Path, start: Start, shares: Sequence[Mapping[str, str]]) -> None:
    from vtune.report.progress import say
    from vtune.report.sweep import render_sweeps
    from vtune.runs.processes.launch import processes_of
    from vtune.runs.sweep.runs import check_failed, run_sweep

    processes = processes_of(start.gpus, start.hostfile) or 1
    given = {
        "--gpus": start.gpus,
        "--hostfile": start.hostfile,
        "--track": start.track,
        "--profile": start.profile,
    }
    options = [word for option, value in given.items() if value is not None for word in (option, str(value))]
    try:
        with stdout_for_the_result():
            result = run_sweep(
                plan,
                folder,
                resume=start.resume,
                processes=processes,
                options=options,
                shares=shares,
            )
    except SystemExit:
        if RESUMABLE.begun:
            words = [word for word in sys.argv[1:] if word != "--resume"]
            say(f"to continue: {shlex.join(['vtune', *words, '--resume'])}")
        raise
    show(result, lambda table: render_sweeps([table]), as_json=start.as_json)
    check_failed(result["failed"])


def _show_plan(sweep: Any, facts: dict[str, Any], *, as_json: bool) -> None:
    """Show the sweep as YAML, preceded by the plan of each variant as comments."""
    from vtune.config import dump_recipe
    from vtune.report.plan import plan_lines
    from vtune.report.sweep import power_lines
    from vtune.report.values import render_values

    if as_json:
        show({"sweep": sweep.model_dump(mode="json"), **facts}, render_values, as_json=True)
        return
    lines = [f"{run}: {state}" for run, state in facts["runs"].items()]
    lines += [f"missing: {name}" for name in facts["missing"]]
    lines += power_lines(facts["power"], len(sweep.seeds))
    if facts["at_a_time"] > 1:
        lines += [f"{facts['at_a_time']} runs at a time, which share this machine's memory"]
    alike: dict[tuple[str, ...], list[str]] = {}
    for variant, plan in facts["variants"].items():
        alike.setdefault(tuple(plan_lines(plan)), []).append(variant)
    for shared, variants in alike.items():
        lines += ["", f"each run of {', '.join(variants)}:", *shared]
    for line in lines:
        sys.stdout.write(f"# {line}".rstrip() + "\n")
    sys.stdout.write(dump_recipe(sweep))

"""What `vtune sft` and `vtune rl` have in common."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import typer

from vtune.config import dump_recipe, find, load_recipe, read_values
from vtune.errors import RESTORE, DataError
from vtune.sections import Strict

from .ending import RESUMABLE
from .options import Start
from .output import show, stdout_for_the_result

R = TypeVar("R", bound=Strict)

VERBS = {"rl": "reward", "sft": "epochs"}
"""Verb -> a key that only its recipes have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb(Generic[R]):
    """How a training verb handles its recipes."""

    package: str
    """Where shipped recipes are, e.g. `recipes.rl`."""
    kind: type[R]
    """The class that a file is read into."""
    check: Callable[..., dict[str, Any]]
    """(recipe, gpus=…, hosts=…) -> what can be known before the start. Raises if something cannot work."""
    run: Callable[..., dict[str, Any]]
    """(recipe, folder, resume=…, track=…, profile=…) -> result."""
    split: Callable[[R, int], None] | None = None
    """Raises if a step cannot be split across this many processes; None: every step can."""
    machine: Callable[[R, int], None] | None = None
    """Raises if several machines with this many processes each will not do; None: they always will."""


def train(verb: Verb[R], name: str | None, overrides: Sequence[str], start: Start) -> None:
    """Read a recipe, then check it or run it, and show the result.

    Args:
        verb: The verb.
        name: Name of a shipped recipe, or a path; None if a run continues with its own recipe.
        overrides: `key.path=value`, applied in order.
        start: How to start; the default folder is `runs/<recipe>`.
    """
    from vtune.files.writing import check_folder_output
    from vtune.metrics.trackers import check_tracker
    from vtune.runs.processes.launch import launch, processes_of
    from vtune.runs.processes.machines import variables
    from vtune.runs.start import check_start

    path = _of_run(verb, start) if name is None else find(name, verb.package)
    recipe = load_recipe(path, verb.kind, overrides)
    if name is None and not start.dry_run and start.hostfile is None:
        _check_where(recipe)
    processes = processes_of(start.gpus, start.hostfile)
    if verb.machine is not None and start.hostfile is not None and start.gpus is not None:
        verb.machine(recipe, start.gpus)
    folder = RESUMABLE.folder = start.out or Path("runs") / path.stem
    check_folder_output(folder)
    check_tracker(start.track)
    if start.dry_run:
        _plan(verb, recipe, folder, processes, start)
        return
    if start.gpus is not None and processes is not None:
        # The ranks would detect this too, if the folder already exists.
        check_start(folder, resume=start.resume)
        if verb.split is not None:
            verb.split(recipe, processes)
        if start.hostfile is None:
            _check_files(recipe)
        words = _without_launch(sys.argv[1:])
        keys = variables(recipe.model_dump(mode="json")).union(*map(variables, _suites(recipe)))
        said = launch(words, folder, processes=start.gpus, hostfile=start.hostfile, forwarded=keys)
        sys.stdout.write(said)
        return
    from vtune.report.progress import say
    from vtune.report.values import render_values
    from vtune.runs.versions import warn_of_versions
    from vtune.update.ranks import Ranks

    first = Ranks.of_this_process().first
    if first:
        warn_of_versions()
        check_start(folder, resume=start.resume)  # a run checks this too, but after reading its data
        say(f"output folder: {folder}")  # torch and the model take seconds to load
    with stdout_for_the_result():
        result = verb.run(recipe, folder, resume=start.resume, track=start.track, profile=start.profile)
    if first:
        show(result, render_values, as_json=start.as_json)


def _of_run(verb: Verb[R], start: Start) -> Path:
    """The recipe of the run to continue.

    Raises:
        typer.BadParameter: If no run is given, or it belongs to another verb.
    """
    from vtune.runs.sweep.table import SWEEP

    if not start.resume or start.out is None:
        raise typer.BadParameter("required, unless --resume --out RUN continues a run", param_hint="--recipe")
    path = start.out / "recipe.yaml"
    if (start.out / SWEEP).is_file():
        raise typer.BadParameter(
            f"{start.out} holds a sweep: give --recipe and --sweep as when it was started", param_hint="--out"
        )
    if not path.is_file():
        raise typer.BadParameter(f"{start.out} has no run to resume: there is no {path}", param_hint="--out")
    values = read_values(path, fix=RESTORE)
    for name, key in VERBS.items():
        if verb.package != f"recipes.{name}" and isinstance(values, dict) and key in values:
            raise typer.BadParameter(f"{start.out} is a run of `vtune {name}`", param_hint="--out")
    return path


def _check_where(recipe: Strict) -> None:
    """Check that a resumed run finds its data from here.

    Raises:
        DataError: If a path in its recipe leads nowhere; the path of its model is stored as an absolute one.
    """
    for name in getattr(recipe, "data", ()):
        if not Path(name).is_absolute() and not Path(name).exists():
            raise DataError(
                f"the run's data file {name} is not in {Path.cwd()}",
                fix="resume in the folder in which the run was started, or give the new paths of the "
                "files: --set 'data=[FILE, …]'",
            )


def _check_files(recipe: Strict) -> None:
    """Check that a recipe's data files exist, for processes on this machine.

    Raises:
        DataError: If one is missing or is not Parquet.
    """
    from vtune.schema.parquet import columns

    for name in getattr(recipe, "data", ()):
        columns(Path(name))


def _plan(verb: Verb[R], recipe: R, folder: Path, processes: int | None, start: Start) -> None:
    """Do what `--dry-run` asks for."""
    from vtune.report.progress import say
    from vtune.runs.start import check_start, holds_run, other_work

    with stdout_for_the_result():
        if start.out is not None or start.resume:
            check_start(folder, resume=start.resume)
        elif (other := other_work(folder)) is not None:
            say(f"{folder} holds {other}: starting needs another --out")
        elif holds_run(folder):
            say(f"{folder} holds a run already: starting needs another --out, or --resume")
        hosts = processes // start.gpus if start.hostfile and start.gpus and processes else None
        facts = verb.check(recipe, gpus=processes, hosts=hosts)
    _show_plan(recipe, facts, as_json=start.as_json)


def planned_for(
    check: Callable[..., dict[str, Any]], dry_run: bool, **wanted: Any
) -> Callable[[Any], dict[str, Any]]:
    """The check for a dry run, with the options that apply only to it.

    Raises:
        typer.BadParameter: If one of them is given without `--dry-run`.
    """
    given = [f"--{name.replace('_', '-')}" for name, value in wanted.items() if value is not None]
    if given and not dry_run:
        raise typer.BadParameter("only with --dry-run", param_hint=given[0])
    return partial(check, **wanted)


def _suites(recipe: Strict) -> list[dict[str, Any]]:
    """The suites that a recipe evaluates, as plain values."""
    section = getattr(recipe, "eval", None)
    if section is None:
        return []
    from vtune.runs.train.online_suites import load_suites

    rollout = getattr(recipe, "rollout", None)
    gpus = 1 if rollout is None else rollout.tensor_parallel
    loaded = load_suites(section, kind="transformers", tensor_parallel=gpus)
    return [one.suite.model_dump(mode="json") for one in loaded]


def _without_launch(words: Sequence[str]) -> list[str]:
    """The command line for each process: without the options that start the processes."""
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
    """Print the resolved recipe; as YAML, the facts come first as comments, so it can be saved and run."""
    if as_json:
        from vtune.report.values import render_values

        show({"recipe": recipe.model_dump(mode="json"), "check": facts}, render_values, as_json=True)
        return
    from vtune.report.plan import plan_lines

    for line in plan_lines(facts):
        sys.stdout.write(f"# {line}".rstrip() + "\n")
    sys.stdout.write(dump_recipe(recipe))

"""`vtune rl`: reinforcement learning."""

from functools import partial
from pathlib import Path
from typing import Any

import typer

from .options import (
    AsJson,
    DryRun,
    GpuMemory,
    GpuName,
    Gpus,
    Hostfile,
    Jobs,
    Only,
    Overrides,
    Profiled,
    Protection,
    Recipe,
    Resume,
    RunFolder,
    ShapeOf,
    Start,
    SweepName,
    Track,
    with_protection,
)


def rl(
    context: typer.Context,
    recipe: Recipe = None,
    overrides: Overrides = None,
    sandbox: Protection = None,
    out: RunFolder = None,
    resume: Resume = False,
    gpus: Gpus = None,
    hostfile: Hostfile = None,
    dry_run: DryRun = False,
    gpu: GpuName = None,
    gpu_memory: GpuMemory = None,
    shape: ShapeOf = None,
    track: Track = None,
    profile: Profiled = None,
    sweep: SweepName = None,
    only: Only = None,
    jobs: Jobs = None,
    as_json: AsJson = False,
) -> None:
    """Train a model with reinforcement learning, as a recipe says."""
    from vtune.runs.train.rl_recipe import RLRecipe, check_machine, check_sizes

    from .sweep import Selection, parse, train_variants
    from .training import Verb, planned_for, train

    check = planned_for(_plan, dry_run, gpu=gpu, gpu_memory=gpu_memory, shape=shape)
    start = Start(
        out=out,
        resume=resume,
        gpus=gpus,
        hostfile=hostfile,
        track=track,
        profile=profile,
        dry_run=dry_run,
        as_json=as_json,
    )
    if sweep is not None:
        if recipe is None:
            raise typer.BadParameter("--sweep needs a recipe to vary", param_hint="--recipe")
        selection = Selection(only=tuple(only or ()), at_a_time=jobs or 1)
        own = with_protection(None, sandbox)
        check_words = partial(parse, context.find_root().command)
        train_variants(
            sweep, recipe, overrides or (), own, start, selection, check=check, check_words=check_words
        )
        return
    for option, value in (("--only", only), ("--jobs", jobs)):
        if value:
            raise typer.BadParameter("only with --sweep", param_hint=option)
    if any(setting.startswith("sweep.") for setting in overrides or ()):
        raise typer.BadParameter("keys that begin with `sweep.` need --sweep", param_hint="--set")
    verb = Verb(
        package="recipes.rl", kind=RLRecipe, check=check, run=_run, split=check_sizes, machine=check_machine
    )
    train(verb, recipe, with_protection(overrides, sandbox), start)


# Imported here, since a process that only starts others needs neither.


def _plan(recipe: Any, **wanted: Any) -> dict[str, Any]:
    from vtune.runs.plan.plan import plan_rl

    return plan_rl(recipe, **wanted)


def _run(recipe: Any, folder: Path, **how: Any) -> dict[str, Any]:
    from vtune.models.import_stubs import uncollected

    with uncollected():
        from vtune.runs.train.loop import run_rl

    return run_rl(recipe, folder, **how)

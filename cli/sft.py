"""`vtune sft`: supervised training on traces."""

from pathlib import Path
from typing import Any

from .options import (
    AsJson,
    DryRun,
    GpuMemory,
    GpuName,
    Gpus,
    Hostfile,
    Overrides,
    Profiled,
    Recipe,
    Resume,
    RunFolder,
    ShapeOf,
    Start,
    Track,
)


def sft(
    recipe: Recipe = None,
    overrides: Overrides = None,
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
    as_json: AsJson = False,
) -> None:
    """Fine-tune a model on traces, as a recipe says."""
    from vtune.runs.train.sft_recipe import SFTRecipe

    from .training import Verb, planned_for, train

    check = planned_for(_plan, dry_run, gpu=gpu, gpu_memory=gpu_memory, shape=shape)
    verb = Verb(package="recipes.sft", kind=SFTRecipe, check=check, run=_run)
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
    train(verb, recipe, overrides or (), start)


# Imported here, since a process that only starts others needs neither.


def _plan(recipe: Any, **wanted: Any) -> dict[str, Any]:
    from vtune.runs.plan.plan import plan_sft

    return plan_sft(recipe, **wanted)


def _run(recipe: Any, folder: Path, **how: Any) -> dict[str, Any]:
    from vtune.models.import_stubs import uncollected

    with uncollected():
        from vtune.runs.train.sft import run_sft

    return run_sft(recipe, folder, **how)

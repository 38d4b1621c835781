"""`vtune sft`."""

from functools import partial

from .options import AsJson, DryRun, GpuMemory, Gpus, Overrides, Recipe, Resume, RunFolder, ShapeOf, Track


def sft(
    recipe: Recipe,
    overrides: Overrides = None,
    out: RunFolder = None,
    resume: Resume = False,
    dry_run: DryRun = False,
    gpus: Gpus = None,
    gpu_memory: GpuMemory = None,
    shape: ShapeOf = None,
    track: Track = None,
    as_json: AsJson = False,
) -> None:
    """Fine-tune a model on traces, as a recipe says."""
    from vtune.runs.plan import plan_sft
    from vtune.runs.sft import SFTRecipe, run_sft

    from .training import planned_for, train

    train(
        recipe,
        "recipes.sft",
        SFTRecipe,
        overrides or (),
        check=planned_for(plan_sft, dry_run, gpus=gpus, gpu_memory=gpu_memory, shape=shape),
        run=partial(run_sft, track=track),
        out=out,
        resume=resume,
        dry_run=dry_run,
        as_json=as_json,
    )

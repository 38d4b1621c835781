"""`vtune sft`."""

from .options import AsJson, DryRun, Gpus, Hostfile, Overrides, Recipe, Resume, RunFolder


def sft(
    recipe: Recipe,
    overrides: Overrides = None,
    out: RunFolder = None,
    resume: Resume = False,
    gpus: Gpus = None,
    hostfile: Hostfile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Fine-tune a model on traces, as a recipe says."""
    from vtune.runs.sft import SFTRecipe, check_sft, run_sft

    from .training import train

    train(
        recipe,
        "recipes.sft",
        SFTRecipe,
        overrides or (),
        check=lambda recipe, _: check_sft(recipe),
        run=run_sft,
        out=out,
        resume=resume,
        gpus=gpus,
        hostfile=hostfile,
        dry_run=dry_run,
        as_json=as_json,
    )

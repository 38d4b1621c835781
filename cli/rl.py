"""`vtune rl`."""

from .options import (
    AsJson,
    DryRun,
    Gpus,
    Hostfile,
    Overrides,
    Protection,
    Recipe,
    Resume,
    RunFolder,
    with_protection,
)


def rl(
    recipe: Recipe,
    overrides: Overrides = None,
    sandbox: Protection = None,
    out: RunFolder = None,
    resume: Resume = False,
    gpus: Gpus = None,
    hostfile: Hostfile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Train a model with reinforcement learning, as a recipe says."""
    from vtune.runs.rl import RLRecipe, check_rl, run_rl

    from .training import train

    train(
        recipe,
        "recipes.rl",
        RLRecipe,
        with_protection(overrides, sandbox),
        check=check_rl,
        run=run_rl,
        out=out,
        resume=resume,
        gpus=gpus,
        hostfile=hostfile,
        dry_run=dry_run,
        as_json=as_json,
    )

"""Two processes write a checkpoint together for each of `RUNS`."""

from pathlib import Path

import torch

from tests.update.build import update
from tests.update.two_processes import ADAPTERS
from vtune.errors import RunFailed
from vtune.models.pictures import PixelBudget
from vtune.runs.train.checkpoint_manager import CheckpointManager
from vtune.update import zero
from vtune.update.deepspeed import Trainer
from vtune.update.loading import starting_policy
from vtune.update.parts import own_share
from vtune.update.ranks import Ranks
from vtune.update.recipe import Checkpoints
from vtune.update.starting import start

RUNS = ((False, 1, False), (False, 3, False), (True, 3, True))
"""(whether Qwen3-VL, ZeRO stage, whether with adapters)."""
BUCKET = 30_000
"""Bucket size in bytes: some weights of the tiny models are larger, and most buckets hold several."""


def main(tiny: str, tiny3: str, out: str) -> None:
    ranks = start(Ranks.of_this_process())
    whole, zero.BUCKET = zero.BUCKET, BUCKET
    try:
        for number, (third, stage, lora) in enumerate(RUNS):
            write(tiny3 if third else tiny, stage, lora, Path(out, str(number)), ranks)
    finally:
        zero.BUCKET = whole


def write(model: str, stage: int, lora: bool, run: Path, ranks: Ranks) -> None:
    recipe = update(zero_stage=stage, lora=ADAPTERS if lora else None)
    budget = PixelBudget(min_pixels=3136, max_pixels=12544)
    policy = starting_policy(model, budget, recipe, ranks)
    trainer = Trainer(policy, recipe, ranks, steps=1, objective=None, reference=model)
    often = Checkpoints(every=1, minutes=None, keep=1, background=run.name != "0")
    with CheckpointManager(often, run, ranks) as checkpoints:
        checkpoints.save(trainer, policy, model, 3)
    trainer.load(run / "checkpoints/newest/deepspeed")
    if ranks.rank == 1:
        trained = [p for p in policy.model.parameters() if p.requires_grad]
        with torch.no_grad():
            own_share(trained[-1]).fill_(float("nan"))
    try:
        checkpoints.save(trainer, policy, model, 4)
    except RunFailed as error:
        (run / f"refused-by-{ranks.rank}").write_text(str(error))

"""Runs a few updates of fixed items with any number of processes; writes numbers and weights to files."""

from pathlib import Path
from typing import Any, NamedTuple

import torch

import vtune.update.forward
from tests.update.build import BY_SEQUENCE, OBJECTIVE, items, update, without_picture
from vtune.models.pictures import PixelBudget
from vtune.models.policy import Policy
from vtune.update.batch import Item
from vtune.update.deepspeed import Trainer
from vtune.update.loading import starting_policy
from vtune.update.losses import PolicyLoss
from vtune.update.ranks import Ranks
from vtune.update.recipe import LoRA, Update
from vtune.update.shards import write_weights
from vtune.update.starting import start

UPDATES = ("even", "uneven", "empty", "text")
"""Shares of 3 and 3; of 3 and 2, i.e. two micro-batches and one; of 1 and none; and without pictures."""

ADAPTERS = LoRA(rank=4, alpha=8, targets=("q_proj", "v_proj", "down_proj"))


SHARED = {"sequence_parallel": 2, "activation_checkpointing": True}
"""Both processes compute each row together."""
MODELS = ("qwen2_5_vl", "qwen3_vl", "even heads", "even heads, qwen3_vl")


class Run(NamedTuple):
    stage: int
    objective: PolicyLoss | None = None
    model: str = MODELS[0]
    changes: dict[str, Any] = {}  # noqa: RUF012 - never changed


RUNS: dict[str, Run] = {
    "sft, ZeRO-1": Run(1),
    "rl, ZeRO-2, offloaded": Run(2, OBJECTIVE, changes={"offload": ("optimizer",), "overlap_comm": True}),
    "rl, ZeRO-3": Run(3, OBJECTIVE, changes={"overlap_comm": True}),
    "rl by sequences, ZeRO-1": Run(1, BY_SEQUENCE),
    "rl, ZeRO-3, offloaded": Run(3, OBJECTIVE, "qwen3_vl", {"offload": ("optimizer", "params")}),
    "rl, ZeRO-1, adapters": Run(1, OBJECTIVE, changes={"lora": ADAPTERS}),
    "rl, ZeRO-3, adapters": Run(3, OBJECTIVE, changes={"lora": ADAPTERS, "freeze": ("vision", "connector")}),
    "rl by sequences, shared rows, ZeRO-2": Run(2, BY_SEQUENCE, "even heads", SHARED),
    "rl, shared rows, ZeRO-3": Run(3, OBJECTIVE, "even heads, qwen3_vl", SHARED),
    "sft, shared rows, frozen tower": Run(1, None, "even heads, qwen3_vl", SHARED | {"freeze": ("vision",)}),
}


def items_of(kind: str, policy: Policy) -> list[Item]:
    """The items of an update, over all processes."""
    count = {"even": 6, "uneven": 5, "empty": 1, "text": 4}[kind]
    found = items(policy, count, seed=count)
    if kind == "text":
        found[1::2] = [without_picture(item, policy) for item in found[1::2]]
    return found


def learnt(folder: Path, ranks: Ranks, run: Run, out: Path) -> tuple[Trainer, list[list[float | None]]]:
    """Return the numbers of each update; write the weights to `out` like a run."""
    recipe = update(zero_stage=run.stage, **run.changes)
    # Loaded as in a run: with ZeRO-3, only the first process provides the weights.
    budget = PixelBudget(min_pixels=3136, max_pixels=12544)
    policy = starting_policy(str(folder), budget, recipe, ranks)
    # Few tokens per chunk, so that processes score different numbers of chunks.
    vocabulary = policy.model.lm_head.weight.shape[0]
    whole, vtune.update.forward.CHUNK = vtune.update.forward.CHUNK, 16 * vocabulary
    try:
        return _learnt(folder, ranks, run, out, policy, recipe)
    finally:
        vtune.update.forward.CHUNK = whole


def _learnt(
    folder: Path, ranks: Ranks, run: Run, out: Path, policy: Policy, recipe: Update
) -> tuple[Trainer, list[list[float | None]]]:
    trainer = Trainer(
        policy, recipe, ranks, steps=len(UPDATES), objective=run.objective, reference=str(folder)
    )
    found = []
    for kind in UPDATES:
        stats = trainer.step(items_of(kind, policy)[ranks.rank :: ranks.world])
        assert stats is not None
        norms = sorted(stats.grad_norms.items())
        assert "language_late" in dict(norms)
        numbers = [stats.loss, stats.grad_norm, stats.entropy, stats.kl, stats.clip_share, stats.mismatch]
        found.append([*numbers, *(norm for _, norm in norms)])
    if ranks.first:
        out.mkdir()
    ranks.wait()
    write_weights(out, trainer, policy, str(folder), ranks)
    with trainer.gathered() as whole:
        # The weights with which each process would generate.
        checksum = sum(float(p.detach().double().abs().sum()) for p in whole.model.parameters())
    assert len(set(ranks.gather(checksum))) == 1, "the processes have different weights"
    assert checksum > 0
    return trainer, found


def main(*folders: str, out: str) -> None:
    """Run all cases; the model folders are given in the order of `MODELS`."""
    torch.set_num_threads(1)
    ranks = start(Ranks.of_this_process())
    Path(out).mkdir(exist_ok=True)
    found, patience = {}, {}
    for number, (name, run) in enumerate(RUNS.items()):
        folder = Path(dict(zip(MODELS, folders, strict=True))[run.model])
        trainer, found[name] = learnt(folder, ranks, run, Path(out) / str(number))
        # The group that DeepSpeed uses for initial weights and gradients.
        backend = trainer._engine.seq_data_parallel_group._get_backend(torch.device("cpu"))
        patience[name] = backend.options._timeout.total_seconds()
    if ranks.first:
        told = {"world": ranks.world, "numbers": found, "patience": patience}
        torch.save(told, Path(out) / "done")

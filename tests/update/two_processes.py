"""A few updates of fixed items, by as many processes as a launcher starts; the losses as JSON.

deepspeed --num_gpus 2 tests/update/two_processes.py MODEL OUT
"""

import json
import sys
from pathlib import Path

from tests.conftest import load
from tests.update.build import OBJECTIVE, items, update, without_picture
from vtune.models.policy import Policy
from vtune.update.batch import Item
from vtune.update.deepspeed import Trainer, start
from vtune.update.ranks import Ranks
from vtune.update.recipe import PolicyLoss

UPDATES = ("even", "uneven", "empty", "text")
"""Shares of 3 and 3; of 3 and 2, which are two micro-batches and one; of 1 and none; one without pictures."""

RUNS: dict[str, tuple[int, PolicyLoss | None]] = {
    "sft, ZeRO-1": (1, None),
    "sft, ZeRO-2": (2, None),
    "rl, ZeRO-1": (1, OBJECTIVE),
    "rl, ZeRO-2": (2, OBJECTIVE),
}


def items_of(kind: str, policy: Policy) -> list[Item]:
    """The items of an update, over all processes."""
    count = {"even": 6, "uneven": 5, "empty": 1, "text": 4}[kind]
    found = items(policy, count, seed=count)
    if kind == "text":
        found[1::2] = [without_picture(item, policy) for item in found[1::2]]
    return found


def losses(model: Path, ranks: Ranks, stage: int, objective: PolicyLoss | None) -> list[list[float | None]]:
    """Loss, gradient norm, entropy, KL, clip share and mismatch of each update."""
    policy = load(model)
    trainer = Trainer(
        policy,
        update(zero_stage=stage),
        ranks,
        steps=len(UPDATES),
        objective=objective,
        reference=str(model),
    )
    found = []
    for kind in UPDATES:
        stats = trainer.step(items_of(kind, policy)[ranks.rank :: ranks.world])
        found.append([stats.loss, stats.grad_norm, stats.entropy, stats.kl, stats.clip_share, stats.mismatch])
    # What was learnt, seen by the same eyes on every process.
    checksum = sum(float(p.detach().double().abs().sum()) for p in policy.model.parameters())
    assert len(set(ranks.gather(checksum))) == 1, "the processes have different weights"
    return [*found, [checksum]]


def main(model: str, out: str) -> None:
    ranks = Ranks.of_this_process()
    start(ranks)
    found = {name: losses(Path(model), ranks, *run) for name, run in RUNS.items()}
    if ranks.first:
        Path(out).write_text(json.dumps({"world": ranks.world, "losses": found}))


if __name__ == "__main__":
    main(*[word for word in sys.argv[1:] if not word.startswith("--local_rank")])

"""Rows that two processes share, compared with the same rows in one: log-probabilities and gradients.

`python -m tests.gpu.shared MODEL OUT`, started by `compared` for each of two ranks.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from tests.gpu.running import environment_apart
from tests.update.sequence_processes import Numbers, many, numbers
from vtune.models.network import free_port
from vtune.models.pictures import PixelBudget
from vtune.models.policy import load_policy
from vtune.update.ranks import Ranks
from vtune.update.sequence import sequence_group
from vtune.update.starting import start

ROOT = Path(__file__).parents[2]
SMALL = 0.01
"""Gradients below this share of the largest are measured against it."""


def compared(model: Path, out: Path) -> dict[str, float]:
    """How far results in float32 are apart (see `apart`); on two GPUs if there are any.

    Raises:
        RuntimeError: If a rank failed.
    """
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.shared", str(model), str(out)],
            cwd=ROOT,
            env={**environment_apart(), **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    codes = [rank.wait() for rank in ranks]
    if any(codes):
        raise RuntimeError(f"the ranks ended with status {codes}")
    found: dict[str, float] = json.loads(out.read_text(encoding="utf-8"))
    return found


def apart(shared: Numbers, alone: Numbers) -> dict[str, float]:
    """Largest difference of log-probabilities, and largest relative distance of a weight's gradient."""
    gradients = {name: value for name, value in alone.items() if name not in ("logprobs", "entropy")}
    norms = {name: float(value.norm()) for name, value in gradients.items()}
    least = SMALL * max(norms.values())
    return {
        "logprobs": float((shared["logprobs"] - alone["logprobs"]).abs().max()),
        "gradients": max(
            float((shared[name] - value).norm()) / max(norms[name], least)
            for name, value in gradients.items()
        ),
    }


def main(model: str, out: str) -> None:
    """One rank: its part of the shared rows, then all of them alone."""
    ranks = start(Ranks.of_this_process())
    group = sequence_group(ranks, 2)
    budget = PixelBudget(min_pixels=3136, max_pixels=12544)
    policy = load_policy(model, budget=budget, dtype="float32", device=ranks.device)
    shared: Mapping[str, torch.Tensor] = numbers(policy, many(policy), group)
    for name, value in shared.items():
        if name not in ("logprobs", "entropy"):
            torch.distributed.all_reduce(value)
    found = apart(dict(shared), numbers(policy, many(policy), None))
    if ranks.first:
        Path(out).write_text(json.dumps(found), encoding="utf-8")
    ranks.wait()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Rollouts with tools that take 200 ms: the asynchronous loop against a loop that is synchronous per turn.

    make bench-vllm

A real vLLM generates. Seeds fix the turn lengths (8 to 64 tokens) and the numbers of turns (1 to 6). In both
loops tools run concurrently, and the same number of conversations is open: four or eight per batch slot
(`codev` on eight GPUs has four). The two loops alternate, three times.
"""

import asyncio
import time
from pathlib import Path
from statistics import median

import torch

from tests.conftest import load
from tests.rollout.load import asynchronous, by_turn, jobs
from vtune.rollout.vllm import Setup, VllmEngine

LANES, GROUPS, ROLLOUTS, ROUNDS = 32, (16, 32), 8, 3


def test_trajectories_per_second(tiny: Path, tmp_path: Path) -> None:
    async def run() -> dict[int, dict[str, list[float]]]:
        policy = load(tiny)
        setup = Setup(
            model=str(tiny),
            dtype="float32",
            max_tokens=1200,
            max_batch=LANES,
            gpu_memory=0.4,
            threads=1,
            device=torch.device("cpu"),
        )
        engine = VllmEngine(policy, setup, tmp_path)
        await engine.take(policy.model.named_parameters, 0)
        await asynchronous(engine, policy, jobs(GROUPS[0], ROLLOUTS)[:LANES], LANES)
        told: dict[int, dict[str, list[float]]] = {}
        for groups in GROUPS:
            work = jobs(groups, ROLLOUTS)
            rates = told[len(work) // LANES] = {"by turn": [], "asynchronous": []}
            for _ in range(ROUNDS):
                for name, loop in (("by turn", by_turn), ("asynchronous", asynchronous)):
                    # Clear the prompts that the other loop has cached.
                    await engine.take(policy.model.named_parameters, 0)
                    began = time.monotonic()
                    found = await loop(engine, policy, work, LANES)
                    rates[name].append(len(found) / (time.monotonic() - began))
        await engine.aclose()
        return told

    for places, rates in asyncio.run(run()).items():
        ratio = median(a / b for a, b in zip(rates["asynchronous"], rates["by turn"], strict=True))
        print(f"{places} conversations for each place: {ratio:.2f} times the trajectories a second")
        for name, found in rates.items():
            print(f"  {name}: {', '.join(f'{rate:.1f}' for rate in found)}")

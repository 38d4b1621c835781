"""A model beyond toy size learns the lens puzzles from scratch: cold start, then RL."""

from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from tests.gpu.checks import Bar, Found, Place
from tests.gpu.models import middling, tiny_model
from tests.gpu.running import rows_of, settings, vtune_here
from vtune.runs.data.lens import make_lens

STEPS = 25
GAIN = 0.05
"""Minimum gain in rewards and right answers from the first ten steps to the last ten (ours)."""


def check(place: Place) -> Found:
    """The cold-start loss falls to half, and rewards rise."""
    small = place.tiny
    model = tiny_model(place.models / "tiny") if small else middling(place.models / "middling")
    data, sft, rl = (place.folder / name for name in ("data", "sft", "rl"))
    sizes = (
        {"train": 16, "heldout": 6, "traces": 32} if small else {"train": 512, "heldout": 64, "traces": 3000}
    )
    make_lens(data, **sizes, level=1, guessable=0.0, seed=0)
    vtune_here(
        ["sft", "--recipe", "codev-tiny", "--out", str(sft), *settings(taught(model, data, small=small))]
    )
    start = sft / "checkpoints/newest"
    given = reinforced(start, data, small=small)
    vtune_here(["rl", "--recipe", "codev-tiny", "--out", str(rl), *settings(given)])
    losses, steps = [row["loss"] for row in rows_of(sft)], rows_of(rl)
    parts = max(1, len(losses) // 10)
    fallen = fmean(losses[-parts:]) / fmean(losses[:parts])
    bars = [Bar(what="loss of the cold start, last tenth by first", value=fallen, at_most=0.5)]
    # The reward also rises if a model unlearns to look but answers in the right format: that of a blind model
    # rose from 0.29 to 0.43 while its right answers fell from 0.17 to 0.14.
    ends = {
        key: (fmean(row[key] for row in steps[:10]), fmean(row[key] for row in steps[-10:]))
        for key in ("reward", "accuracy", "evidence_rate")
    }
    if not small:
        bars += [
            Bar(what=f"{key}, last ten steps less first", value=ends[key][1] - ends[key][0], at_least=GAIN)
            for key in ("reward", "accuracy")
        ]
    return Found(
        bars=bars,
        figures={
            "loss": [fmean(losses[:parts]), fmean(losses[-parts:])],
            **ends,
            "tokens_per_second": fmean(row["tokens_per_second"] for row in steps[1:]),
        },
    )


def taught(model: Path, data: Path, *, small: bool) -> dict[str, Any]:
    """Run the cold start."""
    common = {"model": model, "data": f"[{data / 'traces.parquet'}]"}
    if small:
        return common | {"epochs": 24.0, "update.warmup_steps": 4, "update.threads": 1, "checkpoints.keep": 1}
    # A lower learning rate than the tiny model's, as for any wider model; the rest is from the recipe.
    more = {"epochs": 5.0, "batch_size": 32, "update.learning_rate": 4e-4, "update.warmup_steps": 60}
    return common | more | {"update.dtype": dtype(), "update.threads": 8}


def reinforced(model: Path, data: Path, *, small: bool) -> dict[str, Any]:
    """RL from the cold start."""
    common = {"model": model, "data": f"[{data / 'train.parquet'}]"}
    if small:
        sizes = {"steps": 3, "prompts_per_step": 2, "group_size": 4, "update.threads": 1}
        return common | sizes | {"checkpoints.every": 3, "update.warmup_steps": 0}
    more = {"steps": STEPS, "update.learning_rate": 2e-5, "update.dtype": dtype(), "update.threads": 8}
    return common | more | {"checkpoints.every": STEPS, "trajectories_every": STEPS}


def dtype() -> str:
    """The dtype of the weights: one that is fast on the device."""
    return "bfloat16" if torch.cuda.is_available() else "float32"

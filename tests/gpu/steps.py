"""`vtune rl` at the size of a published model: speed, memory against the plan, and mismatch."""

import math
import shutil
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from tests.gpu.checks import Bar, Found, Place
from tests.gpu.models import TOLERANCE, published, tiny_model
from tests.gpu.running import Memory, rows_of, settings, vtune_here
from vtune.config import find, load_recipe
from vtune.runs.data.lens import make_lens
from vtune.runs.plan.machine import OUTSIDE_GB, machine_of
from vtune.runs.plan.plan import plan
from vtune.runs.train.rl_recipe import RLRecipe

STEPS = 3
"""The first step compiles and warms up, so it is not measured."""
PIXELS = 1280 * 784
"""Pixels per picture, as in codev: 1,280 tokens of Qwen2.5-VL, 980 of Qwen3-VL."""
LORA = {"rank": 64, "alpha": 64, "targets": "[q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj]"}
TOLD = (
    "tokens_per_second_per_gpu",
    "mfu",
    "seconds",
    "seconds_rollout",
    "seconds_update",
    "mismatch_mean",
    "mismatch_kl",
)
OVER = 1.1
"""How far GPU memory may exceed the plan, as a factor."""


def recipe_settings(model: Path, data: Path, *, tiny: bool, vllm: bool) -> dict[str, Any]:
    """Settings for `codev-tiny`: one GPU of 80 GB holds an 8B model with adapters and a vLLM."""
    sizes: dict[str, Any] = {
        "model": model,
        "data": f"[{data}]",
        "steps": STEPS,
        # Without vLLM, a batch of conversations takes minutes.
        "prompts_per_step": 8 if vllm and not tiny else 2,
        "group_size": 4 if tiny else 8,
        "checkpoints.every": STEPS,
        "checkpoints.keep": 1,
        "trajectories_every": STEPS,
        "update.warmup_steps": 0,
        "rollout.engine": "vllm" if vllm else "transformers",
    }
    if tiny:
        return sizes | {"update.threads": 1, "update.micro_tokens": 512}
    lora = ", ".join(f"{key}: {value}" for key, value in LORA.items())
    return sizes | {
        "update.dtype": "bfloat16",
        "update.lora": f"{{{lora}}}",
        "update.freeze": "[vision, connector]",
        "update.learning_rate": 1e-5,
        "update.micro_tokens": 16384,
        "update.activation_checkpointing": "true",
        "update.threads": 8,
        "images.min_pixels": PIXELS,
        "images.max_pixels": PIXELS,
        "rollout.max_new_tokens": 256,
        "rollout.max_tokens": 4096,
        "rollout.gpu_memory": 0.45,
        # Without vLLM, generation needs a merged copy of the weights, so it runs in four batches.
        "rollout.max_batch": 64 if vllm else 16,
    }


def check(place: Place, *, name: str) -> Found:
    """A few steps of the real command, with vLLM if it is installed."""
    model = place.models / ("tiny" if place.tiny else name)
    try:
        (tiny_model(model) if place.tiny else published(model, name))
        data = place.folder / "data"
        make_lens(data, train=8 if place.tiny else 64, heldout=1, traces=1, level=1, guessable=0.0, seed=0)
        vllm = find_spec("vllm") is not None
        given = recipe_settings(model, data / "train.parquet", tiny=place.tiny, vllm=vllm)
        return measured(place.folder / "run", given)
    finally:
        if not place.tiny:  # the disk has room for only one such model and its checkpoint
            shutil.rmtree(model, ignore_errors=True)
            shutil.rmtree(place.folder / "run/checkpoints", ignore_errors=True)


def measured(out: Path, given: dict[str, Any]) -> Found:
    """Run it and compare it with its plan."""
    words = [f"{key}={value}" for key, value in given.items()]
    recipe = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, words)
    machine = machine_of(None, None)
    planned = plan(recipe, machine)
    with Memory() as memory:
        vtune_here(["rl", "--recipe", "codev-tiny", "--out", str(out), *settings(given)])
    rows = rows_of(out)
    timed = rows[1:]
    mismatch = max(row["mismatch"] for row in rows)
    bars = [
        Bar(what="steps", value=len(rows), at_least=STEPS, at_most=STEPS),
        Bar(what="mismatch", value=mismatch, at_most=TOLERANCE[recipe.update.dtype]),
    ]
    if machine.kind == "gpu":
        limit = OVER * planned["peak_gb"] + OUTSIDE_GB["gpu"]
        bars.append(Bar(what="GB of the GPU", value=max(memory.most), at_most=limit))
    figures = {key: fmean(row[key] for row in timed) for key in TOLD if all(key in row for row in timed)}
    assert all(math.isfinite(value) for value in figures.values())
    return Found(
        bars=bars,
        figures=figures
        | {
            "engine": recipe.rollout.engine,
            "planned_gb": planned["peak_gb"],
            "planned_seconds": planned["step"].get("seconds"),
            "gb": memory.most,
            "gb_trainer": torch.cuda.max_memory_allocated() / 1e9 if memory.most else None,
        },
    )

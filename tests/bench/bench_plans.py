"""How far plans can be trusted: memory against a fake CUDA device, seconds against published steps.

Memory: four models on three machines, each trained with the recipe `codev` and those changes proposed by its
plan that do not affect learning. Measured are weights, optimiser and the peak of a micro-batch with all
layers (the device is in `tests/cuda`), divided among GPUs according to the ZeRO stage; DeepSpeed's buffers
are taken from its settings, and vLLM on the trainer's GPUs is left out on both sides.

Seconds: published steps, with their conversations as far as published. The plan leaves out tools, judges,
waiting for the longest conversation, hand-over of weights, checkpoints and evaluations; EasyR1 also scores
all tokens under the old weights in a separate pass. So the plan should come out lower.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from tests.cuda.guard import build, obstacle
from tests.cuda.test_step import measured
from vtune.config import find, load_recipe
from vtune.models.shape import known_shapes, shape_of
from vtune.runs.plan import estimate, seconds
from vtune.runs.plan.estimate import _copied as copied_of
from vtune.runs.plan.machine import GB, Machine, Pictures, machine_of
from vtune.runs.plan.plan import plan
from vtune.runs.plan.remedies import Remedy, changed
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.update import memory, rates

MODELS = ("Qwen2.5-VL-3B", "Qwen2.5-VL-7B", "Qwen3-VL-8B", "Qwen2.5-VL-32B")
MACHINES = ((4, 80, 2), (8, 80, 2), (8, 141, 4))
"""GPUs, GB per GPU, and prompts per micro-batch (32 k or 64 k tokens)."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (reason := obstacle()) is not None:
        pytest.skip(reason)
    out = tmp_path_factory.mktemp("guard") / "guard.so"
    build(out)
    return out


@pytest.mark.parametrize("name", MODELS)
def test_memory_of_a_model_on_each_machine(name: str, library: Path) -> None:
    found: dict[tuple[int, int], Mapping[str, Any]] = {}
    for gpus, gigabytes, groups in MACHINES:
        machine = machine_of(gpus, gigabytes)
        values = fitting(name, machine).model_dump(mode="json")
        shared = estimate.sharing_rows(values)
        if (groups, shared) not in found:
            (one,) = measured([{"name": name, "groups": groups, "shared": shared}], library)
            found[groups, shared] = one
        one = found[groups, shared]
        load = replace(
            estimate.load_of(values, shape_of(known_shapes()[name]), machine),
            tokens=one["tokens"],
            patches=one["patches"],
            shown=one["shown"],
            copied=copied_of(8),
        )
        planned, there = of_plan(name, load), of_device(name, load, one)
        micro = sum(one["planned"].values()) / one["peak"] - 1
        how = f"ZeRO-{load.zero_stage} {' '.join(sorted(load.offload))}, {shared} a row"
        print(
            f"\n| {name} | {gpus} x {gigabytes} GB | {how} | {one['tokens']:,} | {there / GB:.1f} | "
            f"{planned / GB:.1f} | {planned / there - 1:+.1%} | {micro:+.1%} |"
        )


def fitting(name: str, machine: Machine) -> RLRecipe:
    """The recipe `codev` with the changes that its plan proposes; rollouts run on servers elsewhere."""
    recipe = load_recipe(find("codev", "recipes.rl"), RLRecipe)
    values = recipe.model_dump(mode="json")
    values["rollout"]["servers"] = ["http://localhost:8000"]
    recipe = RLRecipe.model_validate(values)
    for one in plan(recipe, machine, shape=name).get("remedies", []):
        if not one["changes_learning"]:
            sets = {
                key: yaml.safe_load(value) for key, _, value in (word.partition("=") for word in one["set"])
            }
            recipe = changed(recipe, Remedy(sets, "")) or recipe
    return recipe


def of_plan(name: str, load: memory.Load) -> float:
    """Planned bytes of the training phase that needs more memory."""
    shape = shape_of(known_shapes()[name])
    stays = sum(memory.resident(shape, load).values()) + sum(memory.gradients(shape, load).values())
    return stays + max(sum(part(shape, load).values()) for part in (memory.backward, memory.stepping))


def of_device(name: str, load: memory.Load, one: Mapping[str, Any]) -> float:
    """Measured bytes of the same phase."""
    weights = one["weights"]
    if load.zero_stage == 3:
        weights = 0 if "params" in load.offload else weights / load.gpus
    offloaded = "optimizer" in load.offload
    optimizer = 0 if offloaded else one["optimizer"] / load.gpus
    each = 4 if load.zero_stage >= 2 else load.dtype_bytes
    gradients = one["numbers"] * each / (load.gpus if load.zero_stage >= 2 else 1)
    buffers = memory.gradients(shape_of(known_shapes()[name]), load)["buffers"]
    stepping = 0 if offloaded else one["peak_step"] / load.gpus
    return float(weights + optimizer + gradients + buffers + max(one["peak"], stepping))


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A step with a published duration."""

    source: str
    model: str
    gigabytes: float
    seconds: float
    prompts: int
    group: int
    kl: float
    tokens: int | None = None
    """Per conversation: tokens per second of all GPUs x seconds / conversations; None: as assumed."""
    together: int = 1
    """GPUs per vLLM instance."""
    mfu: float | None = None
    """Published MFU of the update, at 6 operations per parameter and token, i.e. three passes."""


EASY = {"gigabytes": 80, "prompts": 512, "group": 5, "kl": 0.01}
"""EasyR1's examples/config.yaml; 8 H100."""
VLLM_SHARE = 0.6
"""Share of a GPU's memory, from the same file."""
PUBLISHED = (
    Published(
        source="EasyR1, geo3k", model="Qwen2.5-VL-3B", seconds=120, tokens=675, together=2, mfu=0.081, **EASY
    ),
    Published(
        source="EasyR1, geo3k", model="Qwen2.5-VL-7B", seconds=145, tokens=725, together=2, mfu=0.16, **EASY
    ),
    Published(
        source="EasyR1, geo3k, larger micro-batches",
        model="Qwen2.5-VL-7B",
        seconds=120,
        tokens=750,
        together=2,
        mfu=0.232,
        **EASY,
    ),
    Published(
        source="EasyR1, geo3k",
        model="Qwen2.5-VL-32B",
        seconds=530,
        tokens=1027,
        together=8,
        mfu=0.258,
        **EASY,
    ),
    Published(source="CodeV", model="Qwen2.5-VL-7B", gigabytes=141, seconds=648, prompts=0, group=0, kl=0.0),
)
TEXT = 90
"""Assumed text tokens per geo3k question. Ours."""
LEAST_PIXELS = 262_144
"""EasyR1's minimum; the pictures of geo3k are smaller."""


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: re.sub(r"\W+", "-", f"{one.source} {one.model}"))
def test_seconds_of_a_published_step(one: Published) -> None:
    machine = machine_of(8, one.gigabytes)
    recipe = load_recipe(find("codev", "recipes.rl"), RLRecipe)
    values = recipe.model_dump(mode="json")
    shape = shape_of(known_shapes()[one.model])
    text, written = seconds.PROMPT_WORDS, seconds.TURN_WORDS
    if one.tokens is not None:
        values |= {"prompts_per_step": one.prompts, "group_size": one.group}
        values["rollout"] |= {"max_turns": 1, "max_new_tokens": 2048, "max_tokens": 4096}
        values["rollout"] |= {"tensor_parallel": one.together, "gpu_memory": VLLM_SHARE}
        values["loss"]["kl_weight"] = one.kl
        values["images"]["min_pixels"] = LEAST_PIXELS
        machine = replace(machine, pictures=Pictures(pixels=LEAST_PIXELS))
        text, written = TEXT, one.tokens - TEXT - LEAST_PIXELS // shape.token_pixels
    with patch.multiple(seconds, PROMPT_WORDS=text, TURN_WORDS=written):
        found = seconds.step_of(values, shape, machine)
    step = found["step"]
    theirs = "–"
    if one.mfu is not None:
        # Four passes including recomputation, plus the reference model's.
        passes = 4 + (one.kl > 0)
        theirs = f"{step['seconds, update'] * 3 / passes * rates.TRAIN_SHARE / one.mfu:.0f}"
    print(
        f"\n| {one.source} | {one.model} | {one.seconds:g} | {step['seconds']:g} | "
        f"{step['seconds, update']:g} | {step['seconds, rollout']:g} | {theirs} | "
        f"{found['assumed']['tokens per conversation']} |"
    )

"""The whole loop on one device: `python tests/gpu/bench_loop.py [--steps N] [--out FILE] [--tiny]`.

Rolls out with a sandbox, scores and updates a randomly initialised model of Qwen2.5-VL-3B's shape in bfloat16
(built from its configuration; nothing is downloaded), and prints one JSON document: tokens per second of
rollout and update, share of the peak (MFU), memory by phase, share of each phase, and the largest difference
between log-probabilities when drawn and in training. Exits with 1 where rollout and training disagree.
`--tiny` runs the same on the tiny model in float32, on a CPU too.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from vtune.cli.output import stdout_for_the_result
from vtune.config import find, load_recipe
from vtune.data import lens
from vtune.models.families.shape import Shape
from vtune.models.pictures import PixelBudget
from vtune.models.policy import Policy, load_policy
from vtune.models.shape import find_shape, known_shapes
from vtune.models.tiny import build_tiny
from vtune.report.progress import say
from vtune.rollout.agent import Agent
from vtune.rollout.stopwatch import Stopwatch
from vtune.rollout.transformers import TransformersEngine
from vtune.runs.agent.sandbox import sandbox_of
from vtune.runs.data.lens import make_lens
from vtune.runs.plan.machine import machine_of
from vtune.runs.plan.plan import plan
from vtune.runs.train.draw import jobs_of, prompts_of
from vtune.runs.train.learning import item_of
from vtune.runs.train.rl import RLRecipe
from vtune.schema.store import sample_store
from vtune.update.deepspeed import Trainer, start
from vtune.update.ranks import Ranks

TOLERANCE = {"float32": 1e-4, "bfloat16": 0.25}
"""Largest |log-probability when drawn - in training|; bfloat16 rounds differently with the batch shape."""
PICTURE = 448
"""Pixels per side of what the large model sees: 256 tokens."""


def build_large(folder: Path, name: str) -> None:
    """A model of a known shape with random weights, its vocabulary that of the tiny tokenizer, padded."""
    import transformers

    hf: Any = transformers
    build_tiny(folder, lens.corpus(1, seed=0), seed=0)
    config = json.loads((folder / "config.json").read_text())
    known = json.loads(json.dumps(known_shapes()[name]))
    text, vision = known["text_config"], known["vision_config"]
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
    config["text_config"] |= text | {"rope_parameters": rope, "initializer_range": 0.02}
    config["vision_config"] |= vision | {
        "num_heads": 16,
        "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31],
        "initializer_range": 0.02,
    }
    config["tie_word_embeddings"] = known["tie_word_embeddings"]
    config["text_config"].pop("layer_types", None)
    torch.manual_seed(0)
    settings = hf.Qwen2_5_VLConfig(**{k: v for k, v in config.items() if k != "model_type"})
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = hf.Qwen2_5_VLForConditionalGeneration._from_config(settings, dtype=torch.bfloat16)
    model.save_pretrained(folder)


def recipe_of(folder: Path, *, tiny: bool, steps: int) -> RLRecipe:
    """`codev-tiny` with the sizes of the measurement."""
    wanted = [f"model={folder / 'model'}", f"data=[{folder / 'train.parquet'}]", f"steps={steps}"]
    wanted += ["prompts_per_step=4", "group_size=8", "rollout.max_batch=32", "update.learning_rate=1.0e-6"]
    wanted += ["update.warmup_steps=0"]
    if not tiny:
        wanted += [
            "update.dtype=bfloat16",
            f"images.max_pixels={PICTURE**2}",
            f"images.min_pixels={PICTURE**2}",
        ]
        wanted += ["rollout.max_new_tokens=256", "rollout.max_tokens=2048", "update.threads=8"]
        wanted += ["update.micro_tokens=8192", "update.activation_checkpointing=true"]
    return load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, wanted)


class Phases:
    """Seconds and peak memory of each phase."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: dict[str, float] = {}
        self.peak_gb: dict[str, float] = {}
        self._began = self._now()

    def lap(self, phase: str) -> None:
        now = self._now()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._began
        if self._device.type == "cuda":
            peak = torch.cuda.max_memory_allocated() / 1e9
            self.peak_gb[phase] = max(self.peak_gb.get(phase, 0.0), peak)
            torch.cuda.reset_peak_memory_stats()
        self._began = now

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return time.monotonic()


async def loop(recipe: RLRecipe, policy: Policy, trainer: Trainer, ranks: Ranks) -> dict[str, Any]:
    """Warm up with one step and measure the others."""
    waiting = Stopwatch()
    engine = TransformersEngine(policy, max_batch=recipe.rollout.max_batch, waiting=waiting)
    prompts = sample_store([Path(name) for name in recipe.data])
    written = trained = 0
    lengths: list[int] = []
    mismatch = 0.0
    phases = Phases(ranks.device)
    async with sandbox_of(recipe.sandbox, sessions=recipe.rollout.max_batch) as sandbox:
        agent = Agent(engine, sandbox, policy.chat, policy.pictures, recipe.rollout, waiting=waiting)
        for step in range(recipe.steps):
            if step == 1:
                phases, written, trained, lengths = Phases(ranks.device), 0, 0, []
                waiting.take()
            share = recipe.prompts_per_step // ranks.world
            numbers = range(step * share, (step + 1) * share)
            asked = prompts_of(prompts, recipe, numbers, ranks)
            drawn = await agent.run(jobs_of(asked, recipe, step, numbers, ranks))
            phases.lap("rollout")
            # No reward: whatever the sign, the work is the same.
            items = [
                item_of(replace(one, advantage=(-1.0) ** number), off_policy=False)
                for number, one in enumerate(drawn)
                if any(one.loss_mask)
            ]
            stats = trainer.step(items)
            phases.lap("update")
            say(f"step {step}: {phases.seconds}")
            written += sum(sum(one.loss_mask) for one in drawn)
            trained += sum(len(one.token_ids) for one in drawn)
            lengths += [len(one.token_ids) for one in drawn]
            mismatch = max(mismatch, (stats.mismatch or 0.0) if stats else 0.0)
    whole = sum(phases.seconds.values())
    return {
        "steps": recipe.steps - 1,
        "conversations": len(lengths),
        "tokens per conversation": sum(lengths) / len(lengths),
        "rollout_tokens_per_second": written / phases.seconds["rollout"],
        "update_tokens_per_second": trained / phases.seconds["update"],
        "seconds": phases.seconds | {"waiting for the sandbox": waiting.take()},
        "share": {phase: seconds / whole for phase, seconds in phases.seconds.items()},
        "peak_gb": phases.peak_gb,
        "mismatch": mismatch,
    }


def with_mfu(found: dict[str, Any], shape: Shape, peak: float) -> dict[str, Any]:
    """The share of the device's peak: 6 operations a parameter and token in training, 2 where drawn.

    The output head counts for every token; attention, and layers that run again, are not counted.
    """
    update = 6 * shape.total * found["update_tokens_per_second"] / peak
    return found | {
        "mfu_update": update,
        "mfu_rollout": 2 * shape.total * found["rollout_tokens_per_second"] / peak,
    }


def measure(folder: Path, *, tiny: bool, steps: int, engine: str) -> dict[str, Any]:
    model = folder / "model"
    if tiny:
        build_tiny(model, lens.corpus(1, seed=0), seed=0)
    else:
        build_large(model, "Qwen2.5-VL-3B")
    make_lens(folder, train=64, heldout=1, traces=1, level=1, guessable=0.0, seed=0)
    recipe = recipe_of(folder, tiny=tiny, steps=steps + 1)
    torch.set_num_threads(recipe.update.threads)
    ranks = Ranks.of_this_process()
    start(ranks)
    budget = PixelBudget(**recipe.images.model_dump())
    policy = load_policy(recipe.model, budget=budget, dtype=recipe.update.dtype, device=ranks.device)
    trainer = Trainer(
        policy, recipe.update, ranks, steps=recipe.steps, objective=recipe.loss, reference=recipe.model
    )
    found = asyncio.run(loop(recipe, policy, trainer, ranks))
    size = find_shape(recipe.model, None)
    assert size is not None
    machine = machine_of(None, None)
    said = plan(recipe, machine)
    cores = recipe.update.threads if machine.kind == "cpu" else 1
    return {
        "device": torch.cuda.get_device_name() if ranks.device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "engine": engine,
        "dtype": recipe.update.dtype,
        "parameters": size[0].total,
        "planned_gb": {phase: sum(parts.values()) for phase, parts in said["memory_gb"].items()},
        **with_mfu(found, size[0], machine.device.flops * cores),
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tiny", action="store_true")
    options.add_argument("--steps", type=int, default=3)
    options.add_argument("--engine", choices=["transformers"], default="transformers")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    if not given.tiny and not torch.cuda.is_available():
        options.error("there is no GPU here; --tiny runs the same on the CPU")
    with tempfile.TemporaryDirectory() as folder, stdout_for_the_result():
        found = measure(Path(folder), tiny=given.tiny, steps=given.steps, engine=given.engine)
    text = json.dumps(found, indent=2)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")
    return int(found["mismatch"] > TOLERANCE[found["dtype"]])


if __name__ == "__main__":
    sys.exit(main())

"""Samples per second of vtune's loop and of TRL's GRPOTrainer: `make bench-trl`.

The same tiny model, 4 prompts with a picture, 8 rollouts each, 128 new tokens forced, no KL, one update per
step, one thread; transformers generates on both sides. The two sides run alternately in separate processes.
CPU time is compared, so that waiting for a core does not count; other work still takes cache and memory
bandwidth, so the ratio is also printed for each turn.

TRL has a separate virtual environment (see the Makefile); the project does not depend on it.
"""

import asyncio
import functools
import io
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from vtune.models.policy import Policy
    from vtune.rollout.engine import Completion, Request
    from vtune.rollout.transformers import TransformersEngine
    from vtune.update.deepspeed import Trainer

PROMPTS, GROUP, NEW, SIDE = 4, 8, 128, 112
STEPS, WARM_UP, TURNS = 6, 2, 4
QUESTION = "What is the colour of the small circle? Think, then answer."
RATE = 1e-5


def picture(number: int) -> Image.Image:
    noise = np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    return Image.fromarray(noise)


@functools.cache
def encoded(number: int) -> bytes:
    """The picture as an encoded file, which a step reads."""
    out = io.BytesIO()
    picture(number).save(out, "PNG")
    return out.getvalue()


def worth(text: str) -> float:
    """A cheap reward that differs within a group."""
    return sum(letter.isalpha() for letter in text) / 100


def processor_of_trl(model: Path) -> Any:
    """TRL's processor for the model."""
    import transformers
    from transformers.processing_utils import ProcessorMixin

    class Processor(transformers.Qwen2_5_VLProcessor):
        """The processor without its video part, which needs torchvision."""

        @classmethod
        def get_attributes(cls) -> list[str]:
            return ["image_processor", "tokenizer"]

        def __init__(self, image_processor: Any, tokenizer: Any, **rest: Any) -> None:
            self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
            self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
            self.video_token_id = tokenizer.convert_tokens_to_ids(self.video_token)
            ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=tokenizer.chat_template)

    Processor.__name__ = "Qwen2_5_VLProcessor"
    images = transformers.AutoImageProcessor.from_pretrained(model)
    images.size = {"shortest_edge": 3136, "longest_edge": SIDE * SIDE}
    return Processor(images, transformers.AutoTokenizer.from_pretrained(model))


def steps_of_trl(model: Path) -> list[float]:
    import torch
    import transformers
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    processor = processor_of_trl(model)
    vision = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"]
    turn = [{"role": "user", "content": QUESTION}]
    config = GRPOConfig(
        output_dir=str(model / "trl"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=PROMPTS * GROUP,
        num_generations=GROUP,
        max_completion_length=NEW,
        beta=0.0,
        learning_rate=RATE,
        max_steps=STEPS,
        generation_kwargs={
            "min_new_tokens": NEW,
            "suppress_tokens": processor.tokenizer.convert_tokens_to_ids(vision),
        },
        report_to="none",
        logging_strategy="no",
        save_strategy="no",
        disable_tqdm=True,
    )
    seconds: list[float] = []

    class Clock(transformers.TrainerCallback):
        def on_step_begin(self, *given: Any, **rest: Any) -> None:
            self.began = time.process_time()

        def on_step_end(self, *given: Any, **rest: Any) -> None:
            seconds.append(time.process_time() - self.began)

    count = PROMPTS * STEPS
    trainer = GRPOTrainer(
        model=transformers.AutoModelForImageTextToText.from_pretrained(model, dtype=torch.float32),
        processing_class=processor,
        reward_funcs=lambda completions, **rest: [worth(one[0]["content"]) for one in completions],
        args=config,
        train_dataset=Dataset.from_dict(
            {"prompt": [turn] * count, "image": [picture(number) for number in range(count)]}
        ),
        callbacks=[Clock()],
    )
    trainer.train()
    assert trainer.state.global_step == STEPS
    return seconds


def opened(model: Path) -> tuple["Policy", "Trainer", "TransformersEngine"]:
    """The policy, its trainer and its engine."""
    from vtune.models.pictures import PixelBudget
    from vtune.models.policy import load_policy
    from vtune.rollout.transformers import TransformersEngine
    from vtune.update.deepspeed import Trainer
    from vtune.update.losses.grpo import GRPO
    from vtune.update.ranks import Ranks
    from vtune.update.recipe import Update
    from vtune.update.starting import start

    ranks = Ranks.of_this_process()
    start(ranks)
    budget = PixelBudget(min_pixels=3136, max_pixels=SIDE * SIDE)
    policy = load_policy(str(model), budget=budget, dtype="float32", device=ranks.device)
    chat = policy.chat
    # Banning the end-of-turn token forces the length.
    chat.banned_ids = (*chat.banned_ids, chat.end_id)
    update = Update(
        learning_rate=RATE, schedule="constant", warmup_steps=0, betas=(0.9, 0.999), weight_decay=0.0,
        grad_clip=1.0, micro_tokens=8192, activation_checkpointing=False, zero_stage=1, dtype="float32",
        freeze=(), threads=1, skip_grad_norm=None, offload=(), lora=None,
    )  # fmt: skip
    objective = GRPO(
        algorithm="grpo", clip_low=0.2, clip_high=0.2, importance_cap=2.0,
        aggregation="token_mean", kl_weight=0.0, kl_estimator="k3",
    )  # fmt: skip
    trainer = Trainer(policy, update, ranks, steps=STEPS, objective=objective, reference=str(model))
    engine = TransformersEngine(policy, max_batch=PROMPTS * GROUP)
    return policy, trainer, engine


async def draw(engine: "TransformersEngine", requests: list["Request"]) -> list["Completion"]:
    """Generate for all requests of one step at once."""
    for _ in requests:
        engine.join(0)
    drawn = await asyncio.gather(*(engine.generate(request) for request in requests))
    for _ in requests:
        engine.leave(0)
    return drawn


def asked(policy: "Policy", number: int) -> tuple[list["Request"], list[bytes]]:
    """The requests of a step, and the picture for each."""
    from vtune.rollout.engine import Request, Sampling
    from vtune.schema.message import Message

    images, requests = [], []
    for prompt in range(PROMPTS):
        data = encoded(number * PROMPTS + prompt)
        for rollout in range(GROUP):
            shown = [policy.pictures.read(data)]
            requests.append(
                Request(
                    token_ids=policy.chat.prompt([Message("user", f"<image>{QUESTION}")], shown),
                    pixels=shown,
                    sampling=Sampling(temperature=1.0, max_new_tokens=NEW),
                    key=(number, prompt, rollout),
                )
            )
            images.append(data)
    return requests, images


def steps_of_vtune(model: Path) -> list[float]:
    import torch

    from vtune.advantage.group import group_advantages
    from vtune.update.batch import Item

    torch.set_num_threads(1)
    policy, trainer, engine = opened(model)

    def step(number: int) -> None:
        requests, images = asked(policy, number)
        drawn = asyncio.run(draw(engine, requests))
        assert all(len(one.token_ids) == NEW for one in drawn)
        rewards = [worth(policy.chat.decode(one.token_ids)) for one in drawn]
        groups = [index // GROUP for index in range(len(drawn))]
        gains = group_advantages(rewards, groups, baseline="group_std")
        stats = trainer.step(
            [
                Item(
                    token_ids=[*request.token_ids, *one.token_ids],
                    images=(image,),
                    loss_mask=[False] * len(request.token_ids) + [True] * NEW,
                    advantages=[gain or 0.0] * NEW,
                    old_logprobs=one.logprobs,
                    off_policy=[False] * NEW,
                )
                for request, image, one, gain in zip(requests, images, drawn, gains, strict=True)
            ]
        )
        assert stats is not None
        assert stats.tokens == PROMPTS * GROUP * NEW
        assert stats.mismatch is not None
        assert stats.mismatch < 1e-4

    for number in range(STEPS * PROMPTS):
        encoded(number)  # TRL's pictures are also created before its first step
    return [taken(step, number) for number in range(STEPS)]


def taken(step: Callable[[int], None], number: int) -> float:
    began = time.process_time()
    step(number)
    return time.process_time() - began


SIDES = {"trl": steps_of_trl, "vtune": steps_of_vtune}


def main() -> None:
    from vtune.data import lens
    from vtune.models.tiny import build_tiny

    found: dict[str, list[list[float]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as folder:
        build_tiny(Path(folder) / "model", lens.corpus(1, seed=0, count=100), seed=0)
        for _ in range(TURNS):
            for side in SIDES:
                done = subprocess.run(
                    [sys.executable, __file__, side, str(Path(folder) / "model")],
                    env=os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
                found[side].append(json.loads(done.stdout.splitlines()[-1])[WARM_UP:])
    whole = {side: statistics.median(itertools.chain(*turns)) for side, turns in found.items()}
    for side, turns in found.items():
        seconds = [round(one, 2) for one in itertools.chain(*turns)]
        print(f"{side:6} {PROMPTS * GROUP / whole[side]:6.1f} samples/s  (CPU seconds a step: {seconds})")
    turns = zip(*([statistics.median(turn) for turn in found[side]] for side in SIDES), strict=True)
    by_turn = ", ".join(f"{trl / ours:.2f}" for trl, ours in turns)
    print(f"ratio  {whole['trl'] / whole['vtune']:6.2f}  (by turn: {by_turn})")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        print(json.dumps(SIDES[sys.argv[1]](Path(sys.argv[2]))))

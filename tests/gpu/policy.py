"""Conversations with several pictures, generated with the transformers engine and scored in training."""

import asyncio
import io
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tests.gpu.checks import Bar, Found, Place
from tests.gpu.models import TOLERANCE, tiny_model
from tests.gpu.stock import stock_logprobs
from vtune.models.pictures import PixelBudget
from vtune.models.policy import Dtype, load_policy
from vtune.rollout.engine import Request, Sampling
from vtune.rollout.transformers import TransformersEngine
from vtune.schema.message import Message
from vtune.update.batch import Item
from vtune.update.deepspeed import Trainer
from vtune.update.losses.grpo import GRPO
from vtune.update.ranks import Ranks
from vtune.update.recipe import Update
from vtune.update.starting import start

ROWS, NEW = 64, 128
"""Number of conversations, and tokens generated in each."""
FEW = 8, 16
"""The same in a rehearsal."""


def picture(seed: int) -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (224, 280, 3), np.uint8)
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


async def draw(engine: TransformersEngine, requests: list[Request]) -> list:
    for _ in requests:
        engine.join(0)
    return await asyncio.gather(*(engine.generate(request) for request in requests))


def measured(model: str, dtype: Dtype, count: int, tokens: int) -> dict[str, Any]:
    ranks = Ranks.of_this_process()
    start(ranks)
    budget = PixelBudget(min_pixels=3136, max_pixels=12544)
    policy = load_policy(model, budget=budget, dtype=dtype, device=ranks.device)
    requests = []
    for row in range(count):
        pixels = [policy.pictures.read(picture(row % 8)), policy.pictures.read(picture(100 + row))]
        ids = policy.chat.prompt([Message("user", "<image>Which digit? <image>")], pixels)
        sampling = Sampling(temperature=1.0, max_new_tokens=tokens)
        requests.append(Request(token_ids=ids, pixels=pixels, sampling=sampling, key=(row,)))
    engine = TransformersEngine(policy, max_batch=count)
    asyncio.run(draw(engine, requests))
    began = time.monotonic()
    drawn = asyncio.run(draw(TransformersEngine(policy, max_batch=count), requests))
    rollout = time.monotonic() - began
    said = torch.tensor([value for one in drawn for value in one.logprobs])
    plain = stock_logprobs(Path(model), policy, requests, drawn)
    update = Update(
        learning_rate=1e-4, schedule="constant", warmup_steps=0, betas=(0.9, 0.98), weight_decay=0.0,
        grad_clip=1.0, micro_tokens=16384, activation_checkpointing=False, zero_stage=2, dtype=dtype,
        freeze=(), threads=1, skip_grad_norm=None, offload=(), lora=None,
    )  # fmt: skip
    objective = GRPO(
        algorithm="grpo", clip_low=0.2, clip_high=0.2, importance_cap=2.0,
        aggregation="token_mean", kl_weight=0.0, kl_estimator="k3",
    )  # fmt: skip
    trainer = Trainer(policy, update, ranks, steps=2, objective=objective, reference=model)
    items = [
        Item(
            (*request.token_ids, *one.token_ids),
            (picture(number % 8), picture(100 + number)),
            (*[False] * len(request.token_ids), *[True] * len(one.token_ids)),
            tuple((-1.0) ** number for _ in one.token_ids),
            one.logprobs,
            (False,) * len(one.token_ids),
        )
        for number, (request, one) in enumerate(zip(requests, drawn, strict=True))
    ]
    first = trainer.step(items)
    began = time.monotonic()
    trainer.step(items)
    written = sum(len(one.token_ids) for one in drawn)
    return {
        "dtype": dtype,
        "mismatch": first.mismatch,
        "from_stock": float((said - plain).abs().max()),
        "rollout_tokens_per_second": written / rollout,
        "update_tokens_per_second": written / (time.monotonic() - began),
    }


def check(place: Place) -> Found:
    """Rollout and training agree, in float32 and bfloat16, with each other and with transformers' modules.

    The comparison with transformers is there because the two once agreed while both ignored the pictures.
    """
    model = str(tiny_model(place.folder / "model"))
    size = FEW if place.tiny else (ROWS, NEW)
    rows = [measured(model, dtype, *size) for dtype in TOLERANCE]
    return Found(
        bars=[
            Bar(what=f"{row['dtype']}: {words}", value=row[key], at_most=TOLERANCE[row["dtype"]])
            for row in rows
            for key, words in (("mismatch", "mismatch"), ("from_stock", "apart from transformers"))
        ],
        figures={"rows": rows},
    )

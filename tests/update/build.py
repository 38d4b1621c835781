"""Recipes and items for update tests."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.models.rows import SHOWN, ragged
from vtune.models.batch import Row
from vtune.models.policy import Policy
from vtune.schema.message import Message
from vtune.update.batch import Item, micro_batch
from vtune.update.forward import PolicyForward
from vtune.update.losses.grpo import GRPO
from vtune.update.losses.gspo import GSPO
from vtune.update.recipe import Update


def update(**changes: Any) -> Update:
    values: dict[str, Any] = {
        "learning_rate": 1e-3,
        "schedule": "constant",
        "warmup_steps": 0,
        "betas": (0.9, 0.98),
        "weight_decay": 0.01,
        "grad_clip": 1.0,
        "micro_tokens": 256,
        "activation_checkpointing": False,
        "skip_grad_norm": None,
        "zero_stage": 1,
        "offload": (),
        "dtype": "float32",
        "freeze": (),
        "lora": None,
        "threads": 1,
    }
    return Update(**(values | changes))


OBJECTIVE = GRPO(
    algorithm="grpo",
    clip_low=0.2,
    clip_high=0.2,
    importance_cap=2.0,
    aggregation="token_mean",
    kl_weight=0.1,
    kl_estimator="k3",
)

BY_SEQUENCE = GSPO(
    algorithm="gspo",
    clip_low=0.2,
    clip_high=0.2,
    aggregation="sequence_mean",
    kl_weight=0.1,
    kl_estimator="k2",
)
"""A loss with ratios and means over whole sequences."""


def items(policy: Policy, count: int, *, seed: int = 0) -> list[Item]:
    """Conversations with pictures, of different lengths, with an advantage for every token of the policy."""
    rng = random.Random(seed)
    rows = list(zip(ragged(policy), SHOWN, strict=True))
    found = []
    for number in range(count):
        row, images = rows[number % len(rows)]
        words = policy.chat.words("".join(rng.choice("0123456789abcdef ") for _ in range(rng.randint(4, 24))))
        found.append(
            Item(
                token_ids=[*row.token_ids, *words],
                images=images,
                loss_mask=[False] * len(row.token_ids) + [True] * len(words),
                advantages=[rng.uniform(-1, 1) for _ in words],
                old_logprobs=[rng.uniform(-8, -4) for _ in words],
                off_policy=[number % 2 == 1] * len(words),
            )
        )
    return found


def without_picture(item: Item, policy: Policy) -> Item:
    """The same policy tokens after a text-only question."""
    prompt = policy.chat.prompt([Message("user", "What is 1 + 1?")], [])
    words = [token for token, counts in zip(item.token_ids, item.loss_mask, strict=True) if counts]
    mask = [False] * len(prompt) + [True] * len(words)
    return replace(item, token_ids=[*prompt, *words], images=(), loss_mask=mask)


def with_heads(source: Path, out: Path, *, kv_heads: int) -> Path:
    """A copy of a folder's tiny model with four attention heads and this number of key heads."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    shutil.copytree(source, out, dirs_exist_ok=True)
    values = json.loads((source / "config.json").read_text())
    text = values["text_config"]
    text |= {"num_attention_heads": 4, "num_key_value_heads": kv_heads, "head_dim": 24}
    text["rope_parameters"]["mrope_section"] = [4, 4, 4]
    (out / "config.json").write_text(json.dumps(values))
    torch.manual_seed(0)
    hf: Any = AutoModelForImageTextToText
    hf.from_config(AutoConfig.from_pretrained(out)).save_pretrained(out)
    return out


def row_of(item: Item, policy: Policy) -> Row:
    return Row(item.token_ids, [policy.pictures.read(data) for data in item.images])


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in policy.model.named_parameters()}


@torch.no_grad()
def logprobs_of(policy: Policy, items: list[Item]) -> list[torch.Tensor]:
    """Log-probabilities of the counted tokens of each item."""
    found = []
    for item in items:
        batch = micro_batch([item], policy)
        forward = PolicyForward(policy.model, policy.chat)
        found.append(forward(batch.packed, batch.predicting, batch.targets, 1).logprobs)
    return found

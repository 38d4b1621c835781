"""A vLLM in this process, and the training model's log-probabilities of what it generated."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from tests.models.rows import ragged
from tests.update.build import logprobs_of
from vtune.models.batch import Row
from vtune.models.device import release_cache
from vtune.models.pictures import PixelBudget
from vtune.models.policy import Dtype, Policy, load_policy
from vtune.rollout.engine import Completion, Request, Sampling
from vtune.rollout.vllm import Setup, VllmEngine
from vtune.schema.message import Message
from vtune.update.batch import Item

WORDS = "Which digit is on the sign? " * 24
"""Without pictures, Qwen3-VL adds features that have to be zero, also after sleep."""
SHARE = 0.5
"""Share of the GPU for vLLM."""


def device_here() -> torch.device:
    """The first GPU, or the CPU."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def dtype_here() -> Dtype:
    """A dtype that is fast on the device."""
    return "bfloat16" if torch.cuda.is_available() else "float32"


def policy_of(model: Path) -> Policy:
    """The training model."""
    budget = PixelBudget(min_pixels=3136, max_pixels=12544)
    return load_policy(str(model), budget=budget, dtype=dtype_here(), device=device_here())


def setup_of(model: Path, **more: int) -> Setup:
    """The settings of its vLLM."""
    given: dict[str, int] = {"max_tokens": 1024, "max_batch": 64, "threads": 1, **more}
    return Setup(model=str(model), dtype=dtype_here(), gpu_memory=SHARE, device=device_here(), **given)


def requests(policy: Policy, tokens: int) -> list[Request]:
    """Groups of four with one to three pictures, and one group with more text than all others together."""
    words = policy.chat.prompt([Message("user", WORDS)], [])
    return [
        Request(
            token_ids=row.token_ids,
            pixels=row.pixels,
            sampling=Sampling(temperature=1.0, max_new_tokens=tokens),
            key=(0, 0, group, rollout, 0),
        )
        for group, row in enumerate([*ragged(policy), Row(words, [])])
        for rollout in range(4)
    ]


async def draw(engine: VllmEngine, asked: Sequence[Request]) -> list[Completion]:
    """Generate for all requests concurrently."""
    return list(await asyncio.gather(*(engine.generate(request) for request in asked)))


def scored(policy: Policy, asked: Sequence[Request], drawn: Sequence[Completion]) -> torch.Tensor:
    """Log-probabilities of all generated tokens under the current weights, on the CPU."""
    from tests.models.rows import SHOWN

    items = [
        Item(
            token_ids=[*request.token_ids, *one.token_ids],
            images=SHOWN[request.key[2]] if request.pixels else (),
            loss_mask=[False] * len(request.token_ids) + [True] * len(one.token_ids),
        )
        for request, one in zip(asked, drawn, strict=True)
    ]
    release_cache(policy.device)
    with torch.no_grad():
        return torch.cat([one.float().cpu() for one in logprobs_of(policy, items)])


def reported(drawn: Sequence[Completion]) -> torch.Tensor:
    """vLLM's log-probabilities of the same tokens."""
    return torch.tensor([value for one in drawn for value in one.logprobs])


def longer(asked: Sequence[Request], tokens: int) -> list[Request]:
    """The same requests with a higher token limit."""
    return [replace(request, sampling=replace(request.sampling, max_new_tokens=tokens)) for request in asked]

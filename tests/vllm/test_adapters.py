"""Adapter-only updates in a real vLLM, which has loaded the model itself and gets the two matrices."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.update.test_lora import LORA, adapted
from tests.vllm.test_engine import Run, largest_difference, requests, run
from vtune.models.batch import Row
from vtune.models.packed import pack
from vtune.models.policy import Policy
from vtune.rollout.adapters import Adapters
from vtune.rollout.vllm import Setup, VllmEngine
from vtune.update.forward import PolicyForward
from vtune.update.lora import adapter_units

__all__ = ["run"]

TOKENS = 200
"""Tokens of a turn during which new adapters arrive."""


@pytest.fixture(scope="module")
def trained(tiny: Path) -> Policy:
    """A training model with adapters."""
    return adapted(tiny)


@pytest.fixture(scope="module")
def engine(
    tiny: Path, trained: Policy, run: Run[Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmEngine]:
    setup = Setup(
        model=str(tiny),
        dtype="float32",
        max_tokens=512,
        max_batch=64,
        gpu_memory=0.4,
        threads=1,
        device=torch.device("cpu"),
        adapters=Adapters(rank=LORA.rank, alpha=LORA.alpha, targets=LORA.targets),
    )

    async def start() -> VllmEngine:
        return VllmEngine(trained, setup, tmp_path_factory.mktemp("adapters"))

    found = run(start())
    yield found
    run(found.aclose())


def passed(policy: Policy) -> Iterator[tuple[str, torch.Tensor]]:
    for unit in adapter_units(policy.model):
        yield from unit.weights()


def change(policy: Policy, seed: int) -> None:
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.1)


def test_with_adapters_log_probabilities_match_the_trainers_after_every_change(
    run: Run[Any], engine: VllmEngine, trained: Policy
) -> None:
    asked = requests(trained)
    drawn = []
    for version in range(1, 4):
        change(trained, version)

        async def taken(number: int = version) -> None:
            await engine.take(lambda: passed(trained), number)

        run(taken())
        found = run(draw_again(engine, asked))
        assert largest_difference(trained, asked, found) < 1e-4
        assert {v for completion in found for v in completion.weight_versions} == {version}
        drawn.append([one.logprobs[0] for one in found])
    assert drawn[0] != drawn[1] != drawn[2]
    assert list(engine._folder.iterdir()) == []


async def draw_again(engine: VllmEngine, asked: Any) -> Any:
    return list(await asyncio.gather(*(engine.generate(request) for request in asked)))


def test_new_adapters_take_effect_within_a_turn(run: Run[Any], engine: VllmEngine, trained: Policy) -> None:
    """Each token has the log-probability of the version that generated it."""
    asked = [replace(one, sampling=replace(one.sampling, max_new_tokens=TOKENS)) for one in requests(trained)]

    async def interrupted(seconds: float) -> Any:
        change(trained, 10)
        await engine.take(lambda: passed(trained), 10)
        drawing = asyncio.create_task(draw_again(engine, asked))
        await asyncio.sleep(seconds)
        change(trained, 11)
        await engine.take(lambda: passed(trained), 11)
        return await drawing

    for seconds in (0.2, 0.5, 1.0, 2.0, 4.0):  # the machine may be busy
        found = run(interrupted(seconds))
        if any(set(one.weight_versions) == {10, 11} for one in found):
            break
    else:
        pytest.fail("nothing was being written when the new ones came")
    for version in (10, 11):
        change(trained, version)
        for request, one in zip(asked, found, strict=True):
            own = [v == version for v in one.weight_versions]
            theirs = torch.tensor(one.logprobs)[own]
            ours = scored(trained, request, one)[own]
            torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-4)


@torch.no_grad()
def scored(policy: Policy, request: Any, completion: Any) -> torch.Tensor:
    """Log-probabilities of a turn under the current weights."""
    chat = policy.chat
    row = Row([*request.token_ids, *completion.token_ids], request.pixels)
    packed = pack([row], image_id=chat.image_id, merge=policy.merge, device=policy.device)
    predicting = packed.places[0][len(request.token_ids) - 1 : -1]
    found: torch.Tensor = PolicyForward(policy.model, chat)(
        packed, predicting, torch.tensor(completion.token_ids), 1
    ).logprobs
    return found

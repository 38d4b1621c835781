"""Weights that change while turns are being written."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tests.gpu.checks import Bar, Found, Place
from tests.gpu.hand_over import changed
from tests.gpu.models import TOLERANCE, tiny_model
from tests.gpu.vllm_here import draw, dtype_here, policy_of, reported, requests, scored, setup_of
from vtune.rollout.engine import Completion
from vtune.rollout.vllm import VllmEngine

WAITS = (0.1, 0.3, 1.0, 3.0)
"""Seconds after which new weights come, until they come in time: machines differ."""
TOKENS = 400
"""Of a turn at most: long enough that weights come under it."""


def check(place: Place) -> Found:
    """Each token has the log-probability of the version that drew it, on both sides of a change."""
    return asyncio.run(interrupted(tiny_model(place.models / "tiny"), place.folder / "weights"))


async def interrupted(model: Path, folder: Path) -> Found:
    policy = policy_of(model)
    engine = VllmEngine(policy, setup_of(model), folder)
    asked = requests(policy, TOKENS)
    try:
        await engine.take(policy.model.named_parameters, 0)
        await draw(engine, asked[:4])  # what is compiled at first use is compiled
        before = {name: one.detach().clone() for name, one in policy.model.named_parameters()}
        for seconds in WAITS:
            set_to(policy.model, before)
            await engine.take(policy.model.named_parameters, 0)
            drawing = asyncio.create_task(draw(engine, asked))
            await asyncio.sleep(seconds)
            changed(policy.model)
            await engine.take(policy.model.named_parameters, 1)
            drawn = await drawing
            if both(drawn):
                break
    finally:
        await engine.aclose()
    new = scored(policy, asked, drawn)
    set_to(policy.model, before)
    old = scored(policy, asked, drawn)
    versions = torch.tensor([version for one in drawn for version in one.weight_versions])
    theirs = reported(drawn)
    apart = (torch.where(versions == 0, old, new) - theirs).abs()
    wrong = (torch.where(versions == 0, new, old) - theirs).abs()
    tolerance = TOLERANCE[dtype_here()]
    return Found(
        bars=[
            Bar(what="turns that both versions drew", value=both(drawn), at_least=1),
            Bar(what="mismatch to the version that drew", value=float(apart.max()), at_most=tolerance),
            Bar(what="mismatch to the other one", value=float(wrong.max()), at_least=2 * tolerance),
        ],
        figures={"turns": len(drawn), "tokens": [int((versions == v).sum()) for v in (0, 1)]},
    )


def both(drawn: Sequence[Completion]) -> int:
    """Turns that two versions have drawn."""
    return sum(len(set(one.weight_versions)) == 2 for one in drawn)


@torch.no_grad()
def set_to(model: Any, weights: Mapping[str, torch.Tensor]) -> None:
    """Give a model these weights."""
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])

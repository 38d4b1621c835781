"""Handing weights over to a vLLM that sleeps on the trainer's GPU."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from tests.gpu.checks import Bar, Found, Place
from tests.gpu.models import TOLERANCE, changed, published, tiny_model
from tests.gpu.stock import stock_logprobs
from tests.gpu.vllm_here import (
    SHARE,
    device_here,
    draw,
    dtype_here,
    policy_of,
    reported,
    requests,
    scored,
    setup_of,
)
from vtune.models.policy import Policy
from vtune.rollout.engine import Completion, Request
from vtune.rollout.vllm import VllmEngine, _arguments

LAYERS = 4
"""Layers of Qwen3-VL-8B at full width: its embedding is larger than the transfer buffer, and its first layers
take picture features from memory that vLLM does not restore after sleep."""
TOKENS = 24
ROOM = 12 * 10**9
"""Bytes left for other processes, as another check may run at the same time."""
PAIRS = ("vLLM, ours", "ours, transformers", "vLLM, transformers")
"""The compared pairs; transformers' own modules compute in float32."""


def check(place: Place) -> Found:
    """Three hand-overs, with changed weights and a full torch cache between them."""
    small = place.tiny
    model = tiny_model(place.models / "tiny-3", "qwen3_vl") if small else place.models / "8b-few"
    if not small:
        published(model, "Qwen3-VL-8B", layers=LAYERS)
    return asyncio.run(handed_over(model, place.folder / "weights"))


async def handed_over(model: Path, folder: Path) -> Found:
    policy = policy_of(model)
    largest = max(parameter.nbytes for parameter in policy.model.parameters())
    engine = VllmEngine(policy, setup_of(model), folder)
    asked = requests(policy, TOKENS)
    rows: list[dict[str, Any]] = []
    try:
        loaded = await as_loaded(engine, policy, model, asked)
        await engine.rest()
        for version in range(3):
            if version:
                changed(policy.model)
            hoarded = hoard()
            await engine.take(policy.model.named_parameters, version)
            awake = free_gb()
            drawn = await draw(engine, asked)
            versions = {found for one in drawn for found in one.weight_versions}
            await engine.rest()
            rows.append(
                {
                    "version": version,
                    "versions": sorted(versions),
                    "mismatch": mismatch(policy, asked, drawn),
                    "hoarded_gb": hoarded,
                    "given_back_gb": free_gb() - awake,
                }
            )
    finally:
        await engine.aclose()
    most = TOLERANCE[dtype_here()]
    if max(loaded["vLLM, ours"].values()) > most:
        loaded["without graphs"] = await without_graphs(policy, model, folder, asked)
    handed = max(value for row in rows for value in row["mismatch"].values())
    bars = [
        Bar(what=f"mismatch before a hand-over: {pair}", value=max(loaded[pair].values()), at_most=most)
        for pair in PAIRS
    ]
    bars += [
        Bar(what="mismatch", value=handed, at_most=most),
        Bar(
            what="hand-overs after which the weights of then drew",
            value=sum(row["versions"] == [row["version"]] for row in rows),
            at_least=len(rows),
        ),
    ]
    if device_here().type == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory / 1e9
        given_back = min(row["given_back_gb"] for row in rows)
        bars.append(Bar(what="largest tensor, GB", value=largest / 1e9, at_least=(1 << 30) / 1e9))
        bars.append(
            Bar(what="GB that a sleeping vLLM gives back", value=given_back, at_least=0.8 * SHARE * total)
        )
    return Found(bars=bars, figures={"loaded": loaded, "rows": rows, "largest_gb": largest / 1e9})


async def as_loaded(
    engine: VllmEngine, policy: Policy, model: Path, asked: Sequence[Request]
) -> dict[str, dict[str, float]]:
    """The differences between vLLM with weights that it read itself, our modules, and transformers'."""
    await engine.keep_loaded()
    drawn = await draw(engine, asked)
    theirs, ours = reported(drawn), scored(policy, asked, drawn)
    plain = stock_logprobs(model, policy, asked, drawn)
    pairs = ((theirs, ours), (ours, plain), (theirs, plain))
    return {name: by_kind(one - other, asked, drawn) for name, (one, other) in zip(PAIRS, pairs, strict=True)}


async def without_graphs(
    policy: Policy, model: Path, folder: Path, asked: Sequence[Request]
) -> dict[str, float]:
    """The mismatch of a vLLM without compilation and CUDA graphs, to see whether they cause it."""

    def eager(*given: Any) -> Any:
        return replace(_arguments(*given), enforce_eager=True)

    with patch("vtune.rollout.vllm._arguments", eager):
        engine = VllmEngine(policy, setup_of(model), folder)
    try:
        await engine.take(policy.model.named_parameters, 0)
        return mismatch(policy, asked, await draw(engine, asked))
    finally:
        await engine.aclose()


def mismatch(policy: Policy, asked: Sequence[Request], drawn: Sequence[Completion]) -> dict[str, float]:
    """The largest |log-probability in generation - in training|, by kind."""
    return by_kind(scored(policy, asked, drawn) - reported(drawn), asked, drawn)


def by_kind(apart: torch.Tensor, asked: Sequence[Request], drawn: Sequence[Completion]) -> dict[str, float]:
    """The largest of differences (tokens,), for turns with and without pictures.

    Separately for the first tokens, which come from the prompt's forward pass, and the later ones, which come
    one by one: an error in only one of the four kinds is then half located.
    """
    apart = apart.abs()
    found: dict[str, float] = {}
    for request, values in zip(asked, apart.split([len(one.token_ids) for one in drawn]), strict=True):
        kind = "pictures" if request.pixels else "words"
        for part, some in (("first", values[:1]), ("later", values[1:])):
            if len(some):
                key = f"{kind}, {part}"
                found[key] = max(found.get(key, 0.0), float(some.max()))
    return found


def hoard() -> float:
    """Fill torch's cache as an update does, so that vLLM has no memory unless it is released; returns GB."""
    if device_here().type != "cuda":
        return 0.0
    free, total = torch.cuda.mem_get_info()
    size = max(0, free - max(ROOM, int(0.02 * total)))
    blocks = [torch.empty(size // 8, dtype=torch.uint8, device="cuda") for _ in range(8)]
    del blocks
    return size / 1e9


def free_gb() -> float:
    """Free memory of the GPU in GB, whichever process has the rest."""
    return torch.cuda.mem_get_info()[0] / 1e9 if device_here().type == "cuda" else 0.0

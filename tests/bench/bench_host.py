"""Host time of one rank's rollouts at 7B sizes, without the model, and the event loop's longest block.

    OMP_NUM_THREADS=1 .venv/bin/python -m pytest tests/bench/bench_host.py -s -o python_files='bench_*.py'

Conversations of some 5,000 tokens look at a picture of 3 megapixels and at a crop of 0.8, each rollout at its
own. The engine puts pictures together as a vLLM gets them, and says its turns at once. Pictures are read by
threads, and for comparison on the event loop, in turns.
"""

import asyncio
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.rollout.build import ANSWER, LOOK, SAMPLE, SEEN, FakeSandbox, FakeSession, recipe
from vtune.models.pictures import PictureReader, PixelBudget, Pixels
from vtune.models.policy import Policy
from vtune.rollout.agent import Agent, Job
from vtune.rollout.engine import Completion, Request
from vtune.rollout.scripted import ScriptedEngine
from vtune.rollout.submission import Kept
from vtune.schema.message import Picture

GROUPS, ROLLOUTS, ROUNDS = 4, 8, 1
BEAT = 0.002
"""Seconds between two looks at whether the event loop still turns."""


def photo(width: int, height: int, seed: int) -> bytes:
    """Soft noise, as JPEG."""
    small = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(small).resize((width, height)).save(out, "JPEG", quality=90)
    return out.getvalue()


class Cropping(FakeSandbox):
    """Each session returns a crop of its own."""

    def __init__(self, crops: Sequence[bytes]) -> None:
        super().__init__()
        self.crops = iter(crops)

    async def open(self, images: Sequence[bytes], *, seed: int) -> FakeSession:
        session = await super().open(images, seed=seed)
        session.execution = replace(SEEN, images=(next(self.crops),))
        return session


class Putting(ScriptedEngine):
    """Puts together what it is shown; looks, then answers."""

    def __init__(self, policy: Policy, reader: PictureReader) -> None:
        super().__init__(policy.chat, ["never said"])
        self.reader = reader
        self.kept: Kept[Image.Image] = Kept(1 << 30, lambda made: made.width * made.height * 3)

    async def shown(self, pixels: Pixels) -> Image.Image:
        return await self.reader.beside(self.reader.shown, pixels)

    async def generate(self, request: Request) -> Completion:
        for pixels in request.pixels:
            await self.kept.of(pixels, self.shown)
        return await ScriptedEngine(self._chat, [ANSWER if request.key[-1] else LOOK]).generate(request)


async def on_the_loop(self: PictureReader, images: Sequence[bytes]) -> list[Pixels]:
    return [self.read(data) for data in images]


async def at_once(self: PictureReader, work: Callable[..., Any], *given: Any) -> Any:
    return work(*given)


async def longest_block(done: asyncio.Event) -> float:
    """Seconds of the longest time in which nothing else got a turn."""
    longest = 0.0
    while not done.is_set():
        began = time.monotonic()
        await asyncio.sleep(BEAT)
        longest = max(longest, time.monotonic() - began - BEAT)
    return longest


async def step(policy: Policy, photos: Sequence[bytes], crops: Sequence[bytes]) -> tuple[float, float]:
    """Seconds of all conversations, and of the longest block."""
    reader = PictureReader(policy.pictures._processor, PixelBudget(min_pixels=3136, max_pixels=3_200_000))
    settings = recipe(max_tokens=8000, max_batch=64, max_turns=2)
    agent = Agent(Putting(policy, reader), Cropping(crops), policy.chat, reader, settings)  # type: ignore[arg-type]
    jobs = []
    for group, data in enumerate(photos):
        sample = replace(SAMPLE, images=(Picture(data=data),))
        for rollout in range(ROLLOUTS):
            key = (0, 0, group, rollout)
            jobs.append(Job(sample, (data,), group, rollout, 0, key))
    done, began = asyncio.Event(), time.monotonic()
    beating = asyncio.create_task(longest_block(done))
    found = await agent.run(jobs)
    seconds = time.monotonic() - began
    done.set()
    assert {len(t.images) for t in found} == {2}
    print(f"  {len(found)} conversations of {len(found[0].token_ids)} tokens", end="")
    return seconds, await beating


def test_host_time_of_a_step(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = [photo(2000, 1500, seed) for seed in range(GROUPS)]
    crops = [photo(1000, 800, GROUPS + seed) for seed in range(GROUPS * ROLLOUTS)]
    told: dict[str, list[tuple[float, float]]] = {"on the loop": [], "by threads": []}
    for _ in range(ROUNDS):
        for name, found in told.items():
            with monkeypatch.context() as patch:
                if name == "on the loop":
                    patch.setattr(PictureReader, "load", on_the_loop)
                    patch.setattr(PictureReader, "beside", at_once)
                found.append(asyncio.run(step(policy, photos, crops)))
            print(f", pictures {name}: {found[-1][0]:.1f} s, longest block {1000 * found[-1][1]:.0f} ms")
    pairs = list(zip(told["on the loop"], told["by threads"], strict=True))
    print(f"threads: {median(b[0] / a[0] for a, b in pairs):.2f} of the time", end="")
    print(f", {median(b[1] / a[1] for a, b in pairs):.3f} of the longest block")

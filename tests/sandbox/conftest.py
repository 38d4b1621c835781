"""One sandbox for the whole folder, and a textured picture in which every place looks different."""

import asyncio
import functools
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import cv2
import numpy as np
import PIL.Image
import pytest

from vtune.sandbox import Execution, Limits, Sandbox

QUICK = Limits(seconds=0.5, grace=0.5)
"""For tests of what happens when time is up; the others get as much time as a busy machine needs."""


def picture(width: int = 400, height: int = 300, *, seed: int = 0) -> np.ndarray:
    """Smooth colour blobs, shape (height, width, 3), uint8."""
    noise = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)


def encoded(pixels: np.ndarray, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


@functools.cache
def textured() -> bytes:
    """The picture that most tests use, encoded once."""
    return encoded(picture())


def decoded(content: bytes) -> np.ndarray:
    return np.array(PIL.Image.open(io.BytesIO(content)).convert("RGB"))


class Box:
    """A running sandbox and its event loop."""

    def __init__(self, runner: asyncio.Runner, sandbox: Sandbox) -> None:
        self.runner = runner
        self.sandbox = sandbox

    def run(self, *codes: str, images: Sequence[bytes] = (), seed: int = 0) -> list[Execution]:
        """Run pieces of code one after another in one session."""

        async def story() -> list[Execution]:
            async with await self.sandbox.open(images or [textured()], seed=seed) as session:
                return [await session.run(code) for code in codes]

        return self.runner.run(story())

    def one(self, code: str, images: Sequence[bytes] = ()) -> Execution:
        return self.run(code, images=images)[0]


@contextmanager
def running(limits: Limits, *, warm: int = 8) -> Iterator[Box]:
    with asyncio.Runner() as runner:
        # Pictures come back byte by byte as the code wrote them.
        sandbox = runner.run(Sandbox(limits, warm=warm, decode="host").__aenter__())
        yield Box(runner, sandbox)
        runner.run(sandbox.__aexit__(None, None, None))


@pytest.fixture(scope="package")
def box() -> Iterator[Box]:
    with running(Limits()) as box:
        yield box


@pytest.fixture(scope="package")
def impatient_box() -> Iterator[Box]:
    with running(QUICK) as box:
        yield box

"""Sandbox against a fresh interpreter for each call, as ratios of one run. Not a test: numbers to read.

python tests/bench/bench_sandbox.py
"""

import asyncio
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import cv2
import numpy as np
import PIL.Image

from vtune.sandbox import Sandbox, Session

CROP = "image.crop((1000, 800, 1400, 1100)).save('crop.jpg')"
FRESH = "import cv2, numpy as np\nfrom PIL import Image\nimage = Image.open('image_0.jpg')\n{}"


def photograph() -> bytes:
    """A 4K picture with texture, as JPEG."""
    noise = np.random.default_rng(0).integers(0, 256, (270, 480, 3), dtype=np.uint8)
    file = io.BytesIO()
    PIL.Image.fromarray(cv2.resize(noise, (3840, 2160), interpolation=cv2.INTER_CUBIC)).save(file, "JPEG")
    return file.getvalue()


async def rate(call: Callable[[], Awaitable[object]], *, seconds: float = 1.5) -> float:
    """Calls a second, one after the other."""
    await call()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        await call()
        count += 1
    return count / (time.perf_counter() - start)


def fresh_rate(code: str, image: bytes, *, calls: int = 5) -> float:
    """Calls a second when each is a new interpreter that imports the libraries."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "image_0.jpg").write_bytes(image)
        command = [sys.executable, "-c", FRESH.format(code)]
        start = time.perf_counter()
        for _ in range(calls):
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return calls / (time.perf_counter() - start)


async def parallel_rate(sessions: list[Session], code: str, *, rounds: int = 10) -> float:
    """Calls a second over many sessions at once."""
    start = time.perf_counter()
    for _ in range(rounds):
        runs = await asyncio.gather(*(session.run(code) for session in sessions))
        assert all(run.status == "ok" for run in runs)
    return rounds * len(sessions) / (time.perf_counter() - start)


async def main() -> None:
    image = photograph()
    async with Sandbox() as sandbox:

        async def start_one() -> None:
            await (await sandbox.open([image], seed=0)).close()

        session = await sandbox.open([image], seed=0)
        await session.run(CROP)  # decodes the picture
        print(f"{'':24}{'sandbox/s':>12}{'fresh/s':>12}{'ratio':>9}")
        for name, code in (("print", "print(1)"), ("crop and save, 4K", CROP)):
            ours, theirs = await rate(lambda code=code: session.run(code)), fresh_rate(code, image)
            print(f"{name:24}{ours:12.0f}{theirs:12.1f}{ours / theirs:8.0f}x")
        print(f"{'session start and end':24}{await rate(start_one):12.0f}")
        many = [await sandbox.open([image], seed=n) for n in range(64)]
        print(f"{'print, 64 sessions':24}{await parallel_rate(many, 'print(1)'):12.0f}")


if __name__ == "__main__":
    asyncio.run(main())

"""The cost of never parsing bytes written by the model's code in the trainer.

python -m tests.bench.bench_decoding                       # ms per picture, and as ratios to decoding it here
python -m tests.bench.bench_decoding --scans               # ns per pixel and scan of a JPEG

Not a test: it prints numbers. Each way turns the bytes of a file that a session left into bytes for the
record:

- `here`: decoded by the trainer's own libraries, passed on unchanged (`decode: host`);
- `confined`: decoded in a confined process, handed over as pixels, encoded again (`decode: confined`);
- `collector`: the same, but the session's own collector decodes after the call and writes pixels, which are
  read and encoded here, without a round trip to another process.

The ways alternate, so a busy machine slows all of them; the ratios say more than the times.
"""

import argparse
import asyncio
import io
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import PIL.Image

from vtune.sandbox import Limits, Sandbox
from vtune.sandbox.decoding import decode_here, encode

Way = Callable[[bytes], Awaitable[bytes]]
SIZES = {"crop 400 x 300": (400, 300), "4K": (3840, 2160)}
ROUNDS = {"crop 400 x 300": 30, "4K": 4}


def photo(width: int, height: int) -> PIL.Image.Image:
    """Blobs of colour with camera noise."""
    random = np.random.default_rng(0)
    blobs = random.integers(0, 255, (height // 16 + 2, width // 16 + 2, 3), dtype=np.uint8)
    smooth = np.asarray(
        PIL.Image.fromarray(blobs).resize((width, height), PIL.Image.Resampling.BICUBIC), np.int16
    )
    return PIL.Image.fromarray((smooth + random.normal(0, 3, smooth.shape)).clip(0, 255).astype(np.uint8))


def encoded(picture: PIL.Image.Image, kind: str, **options: object) -> bytes:
    """The picture as a file."""
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def collector(folder: Path) -> Way:
    """Do what the collector would do, and then the trainer."""

    async def decode(content: bytes) -> bytes:
        with PIL.Image.open(io.BytesIO(content)) as picture:
            kind, size, pixels = picture.format or "PNG", picture.size, picture.convert("RGB").tobytes()
        (folder / "pixels").write_bytes(pixels)
        return encode(PIL.Image.frombytes("RGB", size, (folder / "pixels").read_bytes()), kind)

    return decode


async def compare(folder: Path) -> list[dict[str, object]]:
    """One row per size and format."""
    rows: list[dict[str, object]] = []
    async with Sandbox(Limits(), warm=0) as sandbox:
        ways: dict[str, Way] = {
            "here": decode_here(sandbox.limits),
            "confined": sandbox._confined.decode,
            "collector": collector(folder),
        }
        for size, (width, height) in SIZES.items():
            for kind in ("PNG", "JPEG"):
                content = encoded(photo(width, height), kind)
                took: dict[str, list[float]] = {name: [] for name in ways}
                made = {}
                for _ in range(ROUNDS[size] + 1):
                    for name, way in ways.items():
                        began = time.perf_counter()
                        made[name] = await way(content)
                        took[name].append(1000 * (time.perf_counter() - began))
                # The first run of each is a warm-up.
                ms = {name: statistics.median(times[1:]) for name, times in took.items()}
                rows.append(
                    {
                        "picture": f"{size} {kind}",
                        "ms": {name: round(value, 2) for name, value in ms.items()},
                        "ratio": {name: round(value / ms["here"], 1) for name, value in ms.items()},
                        "kb": {name: len(result) >> 10 for name, result in made.items()},
                    }
                )
    return rows


def scans() -> dict[str, float]:
    """The cost of one more empty JPEG scan, in ns per pixel."""
    side, more = 4000, 100
    content = encoded(PIL.Image.new("RGB", (side, side), (90, 120, 40)), "JPEG", progressive=True)
    last = content[content.rindex(b"\xff\xc4", 0, content.rindex(b"\xff\xda")) : -2]
    longer = content[:-2] + last * more + content[-2:]
    times = []
    for data in (content, longer):
        began = time.process_time()
        PIL.Image.open(io.BytesIO(data)).load()
        times.append(time.process_time() - began)
    return {"ns_per_pixel_and_scan": round((times[1] - times[0]) / more / side**2 * 1e9, 2)}


def main() -> None:
    """Print the numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scans", action="store_true")
    if parser.parse_args().scans:
        print(json.dumps(scans()))
        return
    with tempfile.TemporaryDirectory() as folder:
        for row in asyncio.run(compare(Path(folder))):
            print(json.dumps(row))


if __name__ == "__main__":
    main()

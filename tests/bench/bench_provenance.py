"""How well the sandbox tracks what a returned picture shows: precision and recall over many ways of cropping.

python tests/bench/bench_provenance.py                     # every way, 4 boxes on each of 6 pictures
python tests/bench/bench_provenance.py --photos ../shared/data/coco-mini/images --boxes 2
python tests/bench/bench_provenance.py --only lost --worst 20
python tests/bench/bench_provenance.py --costs             # what following regions costs honest code

Not a test: it prints numbers. Recall: the share of regions shown by returned pictures that is reported with
an IoU of at least 0.9. Precision: the share of reported regions that is really shown.
"""

import argparse
import asyncio
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import PIL.Image

from tests.sandbox.ways import WAYS, Box, Way
from vtune.sandbox import Limits, Sandbox, Session

MIN_IOU = 0.9
CALLS_OF_A_SESSION = 12
COSTS = {
    "PIL crop 400 x 300": "image.crop((1000, 800, 1400, 1100))",
    "numpy slice": "a[800:1100, 1000:1400]",
    "numpy slice of a slice": "a[800:1100, 1000:1400][:, 10:50]",
    "cv2.resize of a slice": "cv2.resize(c, (200, 150))",
    "cv2.cvtColor of a slice": "cv2.cvtColor(c, cv2.COLOR_BGR2GRAY)",
    "arithmetic on a slice": "c * 2",
    "one pixel": "a[5, 7]",
    "np.zeros": "np.zeros((30, 40, 3), np.uint8)",
    "a number of an array of floats": "f[3]",
}


def iou(a: Box, b: Box) -> float:
    """Intersection over union of two boxes."""
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(0.0, wide) * max(0.0, high)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def synthetic() -> Iterator[tuple[str, PIL.Image.Image]]:
    """Pictures of several kinds: blobs, noise, and shapes with text on a plain ground."""
    random = np.random.default_rng(7)
    for number, cell in enumerate((6, 16)):
        blobs = random.integers(0, 256, (480 // cell, 640 // cell, 3), dtype=np.uint8)
        yield (
            f"blobs {number}",
            PIL.Image.fromarray(cv2.resize(blobs, (640, 480), interpolation=cv2.INTER_CUBIC)),
        )
    page = np.full((600, 800, 3), 245, np.uint8)
    for _ in range(60):
        x, y, size = random.integers(0, 780), random.integers(20, 590), random.uniform(0.4, 1.4)
        word = "".join(random.choice(list("abcdefgh0123456789"), 6))
        ink = tuple(int(value) for value in random.integers(0, 160, 3))
        cv2.putText(page, word, (int(x), int(y)), cv2.FONT_HERSHEY_SIMPLEX, size, ink, 2)
    yield "page", PIL.Image.fromarray(page)


def photographs(folder: Path) -> Iterator[tuple[str, PIL.Image.Image]]:
    """All pictures of a folder."""
    for path in sorted(folder.glob("*.jpg")):
        yield path.stem, PIL.Image.open(path).convert("RGB")


def boxes(size: tuple[int, int], count: int, seed: int) -> list[tuple[int, int, int, int]]:
    """Random boxes, from 40 pixels to half of the picture, a few pixels away from its edges."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        w, h = (int(random.integers(40, side // 2)) for side in size)
        x0, y0 = int(random.integers(4, size[0] - w - 4)), int(random.integers(4, size[1] - h - 4))
        found.append((x0, y0, x0 + w, y0 + h))
    return found


async def measure(
    pictures: list[tuple[str, PIL.Image.Image]], ways: dict[str, Way], count: int, kind: str
) -> list[tuple[str, str, list[Box], list[Box], str]]:
    """Way, picture, truth, report and error of every run."""
    rows = []
    async with Sandbox(Limits(seconds=20)) as sandbox:
        for number, (title, picture) in enumerate(pictures):
            file = io.BytesIO()
            picture.save(file, kind, **({"quality": 95} if kind == "JPEG" else {}))
            session: Session | None = None
            calls = 0
            for at, (name, way) in enumerate(ways.items()):
                for box in boxes(picture.size, count, seed=1000 * number + at):
                    if session is None or calls >= CALLS_OF_A_SESSION:
                        if session is not None:
                            await session.close()
                        session, calls = await sandbox.open([file.getvalue()], seed=0), 0
                    calls += 1
                    done = await session.run(way.program(box, picture.size))
                    last = len(done.images) - 1
                    shown = [
                        crop.bbox for crop in done.crops if crop.shown is not None and crop.shown == last
                    ]
                    rows.append((name, f"{title} {box}", way.boxes(box, picture.size), shown, done.error))
            if session is not None:
                await session.close()
    return rows


async def costs() -> dict[str, float]:
    """Microseconds of common operations inside a session, to compare with an unhooked process."""
    random = np.random.default_rng(0)
    pixels = cv2.resize(random.integers(0, 256, (216, 384, 3), dtype=np.uint8), (3840, 2160))
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "JPEG")
    setup = "import time\na = np.array(image)\nc = a[800:1100, 1000:1400]\nf = np.zeros(10)\n"
    timed = (
        "best = []\nfor _ in range(7):\n    t = time.perf_counter()\n    for _ in range(200):\n        {}\n"
        "    best.append(time.perf_counter() - t)\nprint(min(best) / 200 * 1e6)"
    )
    found = {}
    async with Sandbox() as sandbox, await sandbox.open([file.getvalue()], seed=0) as session:
        await session.run(setup)
        for name, code in COSTS.items():
            inside = float((await session.run(timed.format(code))).output)
            names: dict[str, object] = {"np": np, "cv2": cv2, "image": PIL.Image.fromarray(pixels)}
            output = io.StringIO()
            names["print"] = lambda value, output=output: output.write(str(value))
            exec(setup + timed.format(code), names)
            found[name] = inside - float(output.getvalue())
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--photos", type=Path, help="a folder of JPEG files, instead of made pictures")
    parser.add_argument("--pictures", type=int, default=6)
    parser.add_argument("--boxes", type=int, default=4, help="on each picture, for each way")
    parser.add_argument("--format", default="PNG", help="in which the inputs are stored")
    parser.add_argument("--only", default="", help="part of the names of the ways")
    parser.add_argument("--worst", type=int, default=15, help="ways that are listed")
    parser.add_argument("--costs", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.costs:
        for name, micros in asyncio.run(costs()).items():
            print(f"{micros:9.2f} us  {name}")
        return
    pictures = list(photographs(options.photos) if options.photos else synthetic())[: options.pictures]
    ways = {name: way for name, way in WAYS.items() if options.only in name}
    started = time.perf_counter()
    rows = asyncio.run(measure(pictures, ways, options.boxes, options.format))
    table = {name: [0, 0, 0, 0] for name in ways}
    failures = []
    for name, where, truth, shown, error in rows:
        hit = sum(any(iou(box, other) >= MIN_IOU for other in shown) for box in truth)
        right = sum(any(iou(box, other) >= MIN_IOU for other in truth) for box in shown)
        table[name] = [
            old + new for old, new in zip(table[name], (hit, len(truth), right, len(shown)), strict=True)
        ]
        if hit < len(truth) or right < len(shown):
            failures.append((name, where, truth, shown, error))
    totals = {}
    for group in ("all", *dict.fromkeys(name.split(":")[0] for name in ways)):
        hit, truth, right, shown = (
            sum(row[at] for name, row in table.items() if group in ("all", name.split(":")[0]))
            for at in range(4)
        )
        totals[group] = {
            "recall": hit / truth,
            "precision": right / max(1, shown),
            "regions": truth,
            "wrong": shown - right,
        }
    if options.json:
        print(json.dumps({"totals": totals, "ways": table}))
        return
    for group, numbers in totals.items():
        print(
            f"{group:8} recall {numbers['recall']:.4f}  precision {numbers['precision']:.4f}  "
            f"of {numbers['regions']} regions, {numbers['wrong']} wrong"
        )
    worst = sorted(table.items(), key=lambda item: (item[1][2] - item[1][3], item[1][0] / item[1][1]))
    for name, (hit, truth, right, shown) in worst[: options.worst]:
        if hit < truth or right < shown:
            print(f"  {name:40} found {hit}/{truth}, wrong {shown - right}")
    for name, where, expected, reported, error in failures[: options.worst]:
        print(f"    {name} | {where} | {expected} | {reported} | {error[-120:]!r}")
    print(f"{len(ways)} ways, {len(pictures)} pictures, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()

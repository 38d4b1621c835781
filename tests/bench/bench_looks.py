"""The cost of verifying a claimed look at a 4K picture against the pixels.

    python -m tests.bench.bench_looks

Not a test: it prints milliseconds of CPU time, with both pictures already decoded. Regions of several sizes,
each returned in several ways; blank pictures are the slowest, as every comparison is tried on them.
"""

import json
import statistics
import time
from collections.abc import Callable

import cv2
import numpy as np

from tests.looks.build import scene
from vtune.looks.agreement import Pixels
from vtune.looks.geometry import onto
from vtune.looks.verify import check
from vtune.looks.view import View, shrunk

SIDES, PLACES = (100, 200, 500, 1500), 8
"""Pixels per side of the regions; number of regions per size."""
FACTOR = 28
"""The sides of the pictures that the policy sees are multiples of this, as for Qwen2.5-VL."""


def grey(pixels: Pixels) -> Pixels:
    return np.dstack([cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)] * 3)


WAYS: dict[str, Callable[[Pixels], Pixels]] = {
    "a copy": lambda pixels: pixels,
    "twice as large": lambda pixels: np.asarray(cv2.resize(pixels, None, fx=2, fy=2), np.uint8),
    "grey": grey,
    "JPEG": lambda pixels: np.asarray(
        cv2.imdecode(cv2.imencode(".jpg", pixels)[1], cv2.IMREAD_COLOR), np.uint8
    ),
    "edges": lambda pixels: np.dstack([cv2.Canny(grey(pixels)[..., 0], 100, 200)] * 3),
    "threshold": lambda pixels: np.asarray(
        cv2.threshold(grey(pixels), 128, 255, cv2.THRESH_BINARY)[1], np.uint8
    ),
    "noise": lambda pixels: np.random.default_rng(0).integers(0, 256, pixels.shape, np.uint8),
}


def main() -> None:
    """Print the median and the maximum for each way and size."""
    cv2.setNumThreads(1)
    source = scene(3840, 2160)
    chance = np.random.default_rng(0)
    found: dict[str, dict[str, list[float]]] = {}
    for side in SIDES:
        for _ in range(PLACES):
            x, y = int(chance.integers(0, 3840 - side)), int(chance.integers(0, 2160 - side))
            box = (float(x), float(y), float(x + side), float(y + side))
            for name, way in WAYS.items():
                pixels = np.ascontiguousarray(way(source[y : y + side, x : x + side]))
                size = (pixels.shape[1], pixels.shape[0])
                seen = tuple(max(1, round(length / FACTOR)) * FACTOR for length in size)
                began = time.process_time()
                # As in `vtune.looks.pictures.viewed`, once for all claims about a picture.
                view = View(pixels, seen, shrunk(pixels, seen))
                check(source, view, onto(box, size), box)
                taken = 1000 * (time.process_time() - began)
                found.setdefault(str(side), {}).setdefault(name, []).append(taken)
    table = {
        side: {
            name: {"median_ms": round(statistics.median(ms), 2), "most_ms": round(max(ms), 2)}
            for name, ms in ways.items()
        }
        for side, ways in found.items()
    }
    honest = [
        ms
        for side in ("100", "200", "500")
        for name, all_ms in found[side].items()
        if name != "noise"
        for ms in all_ms
    ]
    print(json.dumps({"to_500": round(statistics.median(honest), 2), "by_side": table}, indent=1))


if __name__ == "__main__":
    main()

"""CPU time that huge pages save per step: `python -m tests.bench.bench_heap`.

The steps of `bench_trl` (vtune's side) in separate processes, alternating: with stock malloc, with the heap
that loading a model sets up, and with that heap in huge pages. CPU seconds.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.bench_trl import WARM_UP, steps_of_vtune

TURNS = 3
STOCK = "stock malloc"
WAYS = {STOCK: "0", "own heap": "0", "huge pages": "1"}
"""Variant -> value of `THP_MEM_ALLOC_ENABLE`."""


def child(way: str, model: Path) -> list[float]:
    """CPU seconds of the steps, without the first ones, which fault the memory in."""
    if way == STOCK:
        from vtune.models import heap

        heap.use_huge_pages = lambda: None
    return steps_of_vtune(model)[WARM_UP:]


def main() -> None:
    from vtune.data import lens
    from vtune.models.tiny import build_tiny

    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        build_tiny(model, lens.corpus(1, seed=0, count=100), seed=0)
        for _ in range(TURNS):
            for way, blocks in WAYS.items():
                done = subprocess.run(
                    [sys.executable, "-m", "tests.bench.bench_heap", way, str(model)],
                    env=os.environ
                    | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "THP_MEM_ALLOC_ENABLE": blocks},
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
                found[way] += json.loads(done.stdout.splitlines()[-1])
    base = statistics.median(found[STOCK])
    for way, seconds in found.items():
        middle = statistics.median(seconds)
        print(f"{way:16} {middle:6.3f} s a step ({middle / base:.2f}): {[round(s, 2) for s in seconds]}")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        print(json.dumps(child(sys.argv[1], Path(sys.argv[2]))))

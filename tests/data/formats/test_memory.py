"""Files are streamed: memory does not grow with their size."""

import base64
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from tests.data.benchmarks import write_tsv
from tests.data.formats.published import parquet, user

ROWS = {"hrbench": 24, "verl": 60}
"""Megabytes of a file, one per row. The verl file is half as large again as the allowed memory."""
MEGABYTE = 2**20


def bitmap(number: int) -> bytes:
    """A picture of about a megabyte, different for each number."""
    out = BytesIO()
    Image.new("RGB", (600, 600), (number, 0, 0)).save(out, "BMP")
    return out.getvalue()


def tsv(folder: Path) -> Path:
    fixed = {"question": "Which?", "A": "red", "B": "blue", "answer": "A", "category": "single"}
    rows = [
        {"index": str(n), "image": base64.b64encode(bitmap(n)).decode(), **fixed, "cycle_category": "0"}
        for n in range(ROWS["hrbench"])
    ]
    return write_tsv(folder / "hr_bench_4k.tsv", rows)


def verl(folder: Path) -> Path:
    rows = [
        {
            "data_source": "qa",
            "prompt": user("<image>Which?"),
            "images": [{"bytes": bitmap(n), "path": None}],
            "reward_model": {"style": "rule", "ground_truth": "A"},
        }
        for n in range(ROWS["verl"])
    ]
    return parquet(folder / "rows.parquet", rows)


READ = """
import sys, tracemalloc
from pathlib import Path
from vtune.data.formats.building import Options
from vtune.data.formats.table import FORMATS
from vtune.schema.sample import Sample

tracemalloc.start()
count = sum(isinstance(entry, Sample) for _, entry in FORMATS[sys.argv[1]].read(Path(sys.argv[2]), Options()))
print(count, tracemalloc.get_traced_memory()[1])
"""
"""Runs in a separate process: threads left by other tests also allocate."""


@pytest.mark.parametrize(("name", "make", "limit"), [("hrbench", tsv, 12), ("verl", verl, 45)])
def test_rows_are_read_in_bounded_memory(
    name: str, make: Callable[[Path], Path], limit: int, tmp_path: Path
) -> None:
    words = [sys.executable, "-c", READ, name, str(make(tmp_path))]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    count, peak = map(int, done.stdout.split())
    assert count == ROWS[name]
    assert peak < limit * MEGABYTE, f"{peak / MEGABYTE:.0f} MB"

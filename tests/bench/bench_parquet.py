"""How fast sample files are written, read and checked."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from tests.schema.records import SAMPLE
from vtune.schema.message import Picture
from vtune.schema.parquet import read_samples, write_samples
from vtune.schema.sample import Sample

ROWS, PICTURE_BYTES = 2000, 200_000


def test_samples_with_photographs(tmp_path: Path) -> None:
    def source() -> Iterator[Sample]:
        for number in range(ROWS):
            yield replace(SAMPLE, id=str(number), images=(Picture(data=os.urandom(PICTURE_BYTES)),))

    start = perf_counter()
    write_samples(tmp_path / "s.parquet", source())
    middle = perf_counter()
    rows = sum(1 for _ in read_samples(tmp_path / "s.parquet"))
    end = perf_counter()
    megabytes = ROWS * PICTURE_BYTES / 1e6
    print(f"\nwrite {megabytes / (middle - start):.0f} MB/s, read {megabytes / (end - middle):.0f} MB/s")
    print(f"write {ROWS / (middle - start):.0f} rows/s, read {rows / (end - middle):.0f} rows/s")

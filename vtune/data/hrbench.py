"""HR-Bench: 4K and 8K pictures, each question four times with rotated options (DreamMr/HR-Bench)."""

from collections.abc import Iterator
from pathlib import Path

from vtune.data.tsv import question_of, scan_tsv
from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.source_names import named_by

CATEGORIES = ("single", "cross")
"""One instance (FSP), several instances (FCP)."""


def scan_hrbench(path: Path) -> Iterator[Sample | DataError]:
    """One entry per row of `hr_bench_4k.tsv` or `hr_bench_8k.tsv`: the sample, or why it is not as published.

    Source and ids begin with the file's name, so that both files can be used together. Options stay as they
    are: the rotations are part of the score. `extra` keeps `index`, `category` and `cycle_category`. There
    are no target boxes. The caller chooses the tools to offer (`vtune.data.offer`).

    Raises:
        DataError: As `scan_tsv` does.
    """
    for row in scan_tsv(path, ("question", "A", "B", "answer", "category", "cycle_category")):
        try:
            yield row if isinstance(row, DataError) else question_of(row, named_by(path.stem), CATEGORIES)
        except DataError as error:
            yield error

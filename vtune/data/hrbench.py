"""HR-Bench: pictures of 4K and 8K, every question four times with its options rotated (DreamMr/HR-Bench)."""

from collections.abc import Iterator
from pathlib import Path

from vtune.data.options import multiple_choice
from vtune.data.tsv import read_tsv
from vtune.errors import DataError
from vtune.schema.message import Picture
from vtune.schema.sample import Sample

CATEGORIES = ("single", "cross")
"""One instance (FSP), several instances (FCP)."""


def read_hrbench(path: Path) -> Iterator[Sample]:
    """The rows of `hr_bench_4k.tsv` or `hr_bench_8k.tsv`, a sample each; there are no target boxes.

    Source and ids begin with the file's name, so that both files can be used together. Options stay as they
    are: the rotations are part of the score. `extra` keeps `index`, `category` and `cycle_category`.

    Raises:
        DataError: As `read_tsv` does, or at a row whose category, options or answer are not as published.
    """
    for row in read_tsv(path, ("question", "A", "B", "answer", "category", "cycle_category")):
        choices = row.choices
        category = row.values["category"]
        if category not in CATEGORIES:
            raise DataError(
                f"unknown category {category!r}", where=row.place, fix=f"known: {', '.join(CATEGORIES)}"
            )
        yield Sample(
            id=f"{path.stem}/{row.values['index']}",
            source=path.stem,
            prompt=multiple_choice(row.values["question"], choices),
            images=(Picture(data=row.picture),),
            ability="visual_search",
            ground_truth=row.answer,
            answer=choices[ord(row.answer) - ord("A")],
            verifier="choice",
            tools=("python",),
            choices=choices,
            extra={
                "index": row.values["index"],
                "category": category,
                "cycle_category": row.values["cycle_category"],
            },
        )

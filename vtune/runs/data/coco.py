"""`vtune data make coco`: samples of annotated photographs, and cold-start traces of them."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vtune.data.coco import coco_samples
from vtune.errors import DataError, RecipeError
from vtune.files.writing import check_parquet_output
from vtune.rollout.prompts import PLAIN
from vtune.runs.data.own_traces import make_box_traces
from vtune.schema.parquet import write_samples
from vtune.schema.sample import Sample


def make_coco(
    instances: Path, images: Path, out: Path, *, limit: int | None, seed: int, traces: Path | None = None
) -> dict[str, Any]:
    """Write samples of COCO annotations to `out`, and cold-start traces of them.

    Returns:
        `file`, `rows`, `by_source`; `passed_over`, counts of what no question is asked about, by reason; and
        with `traces` the result of `make_box_traces`.

    Raises:
        RecipeError: If an output cannot be written, or is also an input.
        DataError: If annotations or photographs are missing or broken, nothing can be asked about them, or no
            trace can be made from the samples (which are already written then).
    """
    for option, path in (("--out", out), ("--traces", traces)):
        if path is not None:
            check_parquet_output(path, inputs=[instances, images], option=option)
    if traces is not None and os.path.realpath(traces) == os.path.realpath(out):
        raise RecipeError(f"{out} cannot hold both samples and traces", fix="name two files")
    by_source: Counter[str] = Counter()
    passed_over: Counter[str] = Counter()

    def counted() -> Iterator[Sample]:
        for sample in coco_samples(instances, images, limit=limit, seed=seed, passed_over=passed_over):
            by_source[sample.source] += 1
            yield sample
        if not by_source:
            raise DataError(
                "no question can be asked about these photographs",
                where=str(instances),
                fix="it needs boxes of at least 16 pixels per side, in pixels of the photographs",
            )

    rows = write_samples(out, counted())
    made = {
        "file": str(out),
        "rows": rows,
        "by_source": dict(by_source),
        "passed_over": {why: count for why, count in passed_over.items() if count},
    }
    return made if traces is None else made | {"traces": make_box_traces([out], traces, prompt=PLAIN)}

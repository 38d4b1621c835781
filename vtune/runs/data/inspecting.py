"""`vtune data inspect`: what a sample file holds, and its first rows with pictures and boxes."""

import base64
from collections import Counter
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import ImageOps

from vtune.errors import DataError
from vtune.files.writing import check_file_output, write_atomically
from vtune.report.samples import Problem
from vtune.report.samples_page import samples_page
from vtune.runs.data.pictures_ahead import open_whole
from vtune.runs.data.validating import problem_of
from vtune.schema.message import Picture
from vtune.schema.parquet import columns, load_picture, scan_samples
from vtune.schema.pixels import decode_reduced
from vtune.schema.sample import Sample
from vtune.verifiers.drawn import asks_for_boxes, truth_in_pixels

THUMBNAIL = 512
"""Longer side of a picture on the page, in pixels."""


def inspect(path: Path, rows: int, *, html: Path | None = None) -> dict[str, Any]:
    """The content of a sample file: columns, counts, its first `rows` good rows, and the bad rows.

    Args:
        path: The file.
        rows: Number of rows to show.
        html: Also write a page with these rows to this file.

    Returns:
        `file`, `rows`, `columns`, `by_source`, `by_ability`, `by_verifier`, `with_tools`, `with_evidence`,
        `problems`, and `examples`: a sample's facts, picture sizes, and `boxes` of evidence and ground truth
        in pixels.

    Raises:
        DataError: If the file itself cannot be read.
        RecipeError: If the page cannot be written.
    """
    if html is not None:
        check_file_output(html, inputs=[path], option="--html")
    examples: list[dict[str, Any]] = []
    thumbnails: list[list[str]] = []
    problems: list[Problem] = []
    counts: dict[str, Counter[str]] = {key: Counter() for key in ("source", "ability", "verifier")}
    number = with_tools = with_evidence = 0
    for number, entry in enumerate(scan_samples(path), start=1):
        if isinstance(entry, DataError):
            problems.append(problem_of(path, number - 1, entry))
            continue
        for key, counter in counts.items():
            counter[getattr(entry, key)] += 1
        with_tools += bool(entry.tools)
        with_evidence += bool(entry.evidence)
        if len(examples) < rows:
            try:
                example = _example(entry, path.parent, number - 1)
                if html is not None:
                    thumbnails.append([_thumbnail(picture, path.parent) for picture in entry.images])
            except DataError as error:
                problems.append(problem_of(path, number - 1, error))
            else:
                examples.append(example)
    result = {
        "file": str(path),
        "rows": number,
        "columns": columns(path),
        **{f"by_{key}": dict(counter) for key, counter in counts.items()},
        "with_tools": with_tools,
        "with_evidence": with_evidence,
        "problems": problems,
        "examples": examples,
    }
    if html is not None:
        write_atomically(html, samples_page(result, thumbnails), option="--html")
        result["page"] = str(html)
    return result


def _example(sample: Sample, base: Path, row: int) -> dict[str, Any]:
    sizes = [open_whole(picture, base).size for picture in sample.images]
    evidence = [
        {"label": item.label, "image": item.image, "bbox_2d": list(item.bbox)} for item in sample.evidence
    ]
    return {
        "row": row,
        "id": sample.id,
        "source": sample.source,
        "question": sample.question,
        "choices": list(sample.choices),
        "ground_truth": sample.ground_truth,
        "verifier": sample.verifier,
        "tools": list(sample.tools),
        "environment": sample.environment,
        "images": [{"width": width, "height": height} for width, height in sizes],
        "evidence": evidence,
        "boxes": [{"of": "evidence", **box} for box in evidence] + _truth_boxes(sample, sizes),
    }


def _truth_boxes(sample: Sample, sizes: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """The boxes of a ground truth, in pixels of the first picture; empty if it is not a list of boxes."""
    if not sizes or not asks_for_boxes(sample):
        return []
    return [
        {"of": "ground truth", "label": one.label, "image": 0, "bbox_2d": list(one.box)}
        for one in truth_in_pixels(sample, sizes[0])
    ]


def _thumbnail(picture: Picture, base: Path) -> str:
    """A reduced picture as a data URI."""
    out = BytesIO()
    decoded = decode_reduced(load_picture(picture, base), THUMBNAIL)
    small = ImageOps.contain(decoded, (THUMBNAIL, THUMBNAIL))
    small.save(out, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"

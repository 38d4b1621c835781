"""`vtune data`: make samples from public formats, look at a file, check every row of files."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

from PIL import Image

from vtune.data.coco import coco_samples, coco_traces
from vtune.errors import DataError
from vtune.report.samples import Problem, describe_problem
from vtune.schema.decode import UNDECODABLE
from vtune.schema.message import Picture
from vtune.schema.parquet import (
    columns,
    load_picture,
    read_samples,
    scan_samples,
    write_samples,
    write_trajectories,
)
from vtune.schema.sample import Sample
from vtune.verifiers import check_ground_truth

_SHOWN_PROBLEMS = 10
JPEG_END = b"\xff\xd9"
TAIL = 4096
"""Bytes at the end of a JPEG in which its end marker is looked for: cameras append a little."""


def make_coco(
    instances: Path, images: Path, out: Path, *, limit: int | None, seed: int, traces: Path | None = None
) -> dict[str, object]:
    """Write samples of COCO annotations to `out`, and cold-start traces of them; return what was written.

    Raises:
        DataError: If annotations or photographs are missing or broken.
    """
    by_source: Counter[str] = Counter()

    def counted() -> Iterator[Sample]:
        for sample in coco_samples(instances, images, limit=limit, seed=seed):
            by_source[sample.source] += 1
            yield sample

    rows = write_samples(out, counted())
    made: dict[str, object] = {"file": str(out), "rows": rows, "by_source": dict(by_source)}
    if traces is not None:
        write_trajectories(traces, coco_traces(read_samples(out)))
        made["traces"] = str(traces)
    return made


def inspect(path: Path, rows: int) -> dict[str, object]:
    """What a sample file holds: columns, counts, and its first `rows` rows with their pictures' sizes.

    Raises:
        DataError: At the first row that is no valid sample; `validate` lists all of them.
    """
    examples = [_example(sample, path.parent) for sample in islice(read_samples(path), rows)]
    sources: Counter[str] = Counter()
    abilities: Counter[str] = Counter()
    verifiers: Counter[str] = Counter()
    with_tools = with_evidence = 0
    for sample in read_samples(path):
        sources[sample.source] += 1
        abilities[sample.ability] += 1
        verifiers[sample.verifier] += 1
        with_tools += bool(sample.tools)
        with_evidence += bool(sample.evidence)
    return {
        "file": str(path),
        "rows": sources.total(),
        "columns": columns(path),
        "by_source": dict(sources),
        "by_ability": dict(abilities),
        "by_verifier": dict(verifiers),
        "with_tools": with_tools,
        "with_evidence": with_evidence,
        "examples": examples,
    }


Scan = Callable[[Path], Iterator[Sample | DataError]]
"""Reads a file: one entry a row, the sample or what is wrong with it."""


def validate(paths: Sequence[Path], scan: Scan = scan_samples) -> dict[str, Any]:
    """Check every row of every file without a model.

    A row is good if it is a valid sample, its id is in no other row of any file, its verifier exists
    and accepts the ground truth, its pictures are there and can be opened, and its evidence lies inside
    them. Of a bad row the first problem is listed.

    Args:
        paths: The files.
        scan: Reads one.

    Returns:
        `rows`; `by_source`, the good rows; and `problems`, each with `file`, `row` (from 0; None where the
        file itself is the problem), `what` and `fix`.
    """
    rows = 0
    by_source: Counter[str] = Counter()
    problems: list[Problem] = []
    places: dict[str, str] = {}
    for path in paths:
        try:
            for row, entry in enumerate(scan(path)):
                rows += 1
                try:
                    sample = _good(entry, path, row, places)
                except DataError as error:
                    problems.append(_problem(path, row, error))
                else:
                    by_source[sample.source] += 1
        except DataError as error:
            problems.append(_problem(path, None, error))
    return {"rows": rows, "by_source": dict(by_source), "problems": problems}


def check_data(paths: Sequence[Path], scan: Scan = scan_samples) -> None:
    """Refuse files with bad rows, before a run starts; the arguments are those of `validate`.

    Raises:
        DataError: With the first problems, each with file, row and remedy.
    """
    problems: list[Problem] = validate(paths, scan)["problems"]
    if not problems:
        return
    lines = [f"  {describe_problem(problem)}" for problem in problems[:_SHOWN_PROBLEMS]]
    if len(problems) > _SHOWN_PROBLEMS:
        lines.append(f"  … and {len(problems) - _SHOWN_PROBLEMS} more")
    raise DataError(
        "\n".join([f"{len(problems)} problem(s) in the data", *lines]),
        fix="`vtune data validate FILE…` lists all of them" if scan is scan_samples else "",
    )


def _good(entry: Sample | DataError, path: Path, row: int, places: dict[str, str]) -> Sample:
    if isinstance(entry, DataError):
        raise entry
    place = f"{path}, row {row}"
    first = places.setdefault(entry.id, place)
    if first != place:
        raise DataError(f"id {entry.id!r} is also in {first}", fix="ids are unique in all data: rename one")
    check_ground_truth(entry)
    sizes = [_size(picture, path.parent) for picture in entry.images]
    for item in entry.evidence:
        width, height = sizes[item.image]
        x0, y0, x1, y1 = item.bbox
        if not (x0 >= 0 and y0 >= 0 and x1 <= width and y1 <= height):
            raise DataError(
                f"evidence {list(item.bbox)} leaves image {item.image}, which is {width}x{height}",
                fix="write xyxy in pixels of the stored image",
            )
    return entry


def _problem(path: Path, row: int | None, error: DataError) -> Problem:
    # The place within the row, e.g. its column, follows the file and the row in `where`.
    detail = error.where.removeprefix(str(path)).removeprefix(f", row {row}").removeprefix(", ")
    what = f"{error.what} ({detail})" if detail else error.what
    return {"file": str(path), "row": row, "what": what, "fix": error.fix}


def _size(picture: Picture, base: Path) -> tuple[int, int]:
    """Width and height in pixels, from the header of an encoded picture; it must be there to its end.

    Decoding every picture would take long before a large run: PNG checksums and the end marker of JPEG
    find what was cut short.
    """
    content = load_picture(picture, base)
    try:
        with Image.open(BytesIO(content)) as image:
            size = image.size
            if image.format == "JPEG" and JPEG_END not in content[-TAIL:]:
                raise OSError("it is cut short")
            image.verify()
            return size
    except UNDECODABLE as error:
        name = picture.path or f"{len(content)} bytes"
        raise DataError(f"a picture cannot be opened ({name}): {error}", fix="store PNG or JPEG") from None


def _example(sample: Sample, base: Path) -> dict[str, object]:
    sizes = [_size(picture, base) for picture in sample.images]
    return {
        "id": sample.id,
        "source": sample.source,
        "question": sample.question,
        "choices": list(sample.choices),
        "ground_truth": sample.ground_truth,
        "verifier": sample.verifier,
        "tools": list(sample.tools),
        "images": [{"width": width, "height": height} for width, height in sizes],
        "evidence": [
            {"label": item.label, "image": item.image, "bbox_2d": list(item.bbox)} for item in sample.evidence
        ],
    }

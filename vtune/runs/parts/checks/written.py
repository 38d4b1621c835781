"""What a data format that is also written promises: an import brings back what an export wrote."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from vtune.data.formats.building import Options
from vtune.data.formats.specimens import Specimen
from vtune.data.formats.table import FORMATS, writer_of
from vtune.data.formats.values import picture_size
from vtune.environments import ENVIRONMENTS
from vtune.runs.data.exporting import export_data
from vtune.runs.data.importing import import_data
from vtune.runs.parts.checks.check import Broken
from vtune.schema.box import Box
from vtune.schema.message import Message, Picture
from vtune.schema.parquet import read_samples, read_trajectories, write_samples, write_trajectories
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Crop, Trajectory
from vtune.tools.python import NAME as PYTHON

LOSSLESS = (
    "write all of it (`vtune.data.formats.own` packs what no column holds), or let `to_row` raise DataError "
    "for what the format cannot hold"
)


def check_written(name: str, specimen: Specimen, folder: Path) -> str:
    """Export what an import makes of a specimen, and a record with all that ours may say, and import it.

    Args:
        name: Of the format, which is written.
        specimen: Its rows.
        folder: For files.

    Returns:
        What came back, in words.

    Raises:
        Broken: If a row of the specimen is refused, or something comes back otherwise.
    """
    made, full, back = (folder / f"{step}.parquet" for step in ("made", "full", "back"))
    there = folder / ("there.jsonl" if writer_of(name).columns is None else "there.parquet")
    options = Options(images=specimen.images)
    import_data(name, [specimen.path], made, options=options, strict=True, show=False)
    records = [*_read(name, made)]
    _write(name, full, [*records, *_fullest(records)])
    problems = export_data(name, full, there, show=False)["problems"]
    refused = {problem["row"]: problem for problem in problems}
    for number in sorted(refused)[:1]:
        if number < len(records):
            raise Broken(f"row {number} of its own: {refused[number]['what']}", "write what `read` makes")
    import_data(name, [there], back, options=Options(), strict=True, show=False)
    wrote = [record for number, record in enumerate(_read(name, full)) if number not in refused]
    _check_same(wrote, [*_read(name, back)])
    return f"{len(wrote)} {FORMATS[name].makes}, {len(refused)} refused"


def _read(name: str, path: Path) -> Iterable[Any]:
    return read_samples(path) if FORMATS[name].makes == "samples" else read_trajectories(path)


def _write(name: str, path: Path, records: Sequence[Any]) -> None:
    if FORMATS[name].makes == "samples":
        write_samples(path, records)
    else:
        write_trajectories(path, records)


def _fullest(records: Sequence[Any]) -> list[Any]:
    """One of the records with all that a record of ours may say; none where traces make no calls."""
    if isinstance(records[0], Sample):
        return [_full_sample(records[0])]
    return [_full_trace(trace) for trace in records if trace.calls][:1]


def _full_sample(sample: Sample) -> Sample:
    return replace(
        sample,
        id="check/full",
        source="check",
        ability="check",
        prompt=(Message("system", "Look."), *sample.prompt),
        answer="as people say it",
        accuracy_ratio=0.5,
        format_ratio=0.25,
        tool_ratio=0.25,
        tools=(PYTHON,),
        environment=next(iter(ENVIRONMENTS)),
        evidence=(Evidence("sign", 0, _all_of(sample.images[0])),) if sample.images else (),
        choices=sample.choices or ("red", "blue"),
        extra={**sample.extra, "kept": {"of": [1, 0.5, None, "é"]}},
    )


def _full_trace(trace: Trajectory) -> Trajectory:
    call = trace.calls[0]
    crops = (Crop(0, _all_of(trace.images[0]), shown=call.images[0]),) if call.images else ()
    named = replace(call, status="error", error="no such file", output="", seconds=0.5, crops=crops)
    return replace(trace, sample_id="check/full", source="check", calls=(named, *trace.calls[1:]))


def _all_of(picture: Picture) -> Box:
    width, height = picture_size(picture)
    return 0.0, 0.0, float(width), float(height)


def _check_same(wrote: Sequence[Any], back: Sequence[Any]) -> None:
    """Check that records came back as they were, but for the paths of pictures, whose bytes are stored.

    Raises:
        Broken: If not.
    """
    if len(back) != len(wrote):
        raise Broken(f"{len(wrote)} rows were written, and {len(back)} are read", LOSSLESS)
    for number, pair in enumerate(zip(wrote, back, strict=True)):
        one, other = (
            replace(record, images=tuple(replace(picture, path=None) for picture in record.images))
            for record in pair
        )
        for field in fields(one):
            was, now = getattr(one, field.name), getattr(other, field.name)
            if was != now:
                raise Broken(f"`{field.name}` of row {number} was {was!r:.60} and is {now!r:.60}", LOSSLESS)

"""What a data format with a writer promises: an import brings back what an export wrote."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from vtune.data.formats.building import Options
from vtune.data.formats.specimens import Specimen
from vtune.data.formats.table import FORMATS, writer_of
from vtune.errors import DataError
from vtune.report.samples import Problem
from vtune.runs.data.exporting import export_data
from vtune.runs.data.importing import import_data
from vtune.runs.data.reading_back import LOSSLESS
from vtune.runs.parts.checks.check import Broken
from vtune.runs.parts.checks.records import samples, traces
from vtune.schema.difference import difference
from vtune.schema.parquet import read_samples, read_trajectories, write_samples, write_trajectories
from vtune.schema.sample import Sample

WORDS = {
    "prompt": ("turn", "message", "system"),
    "images": ("picture",),
    "evidence": ("box",),
    "ground_truth": ("answer", "truth"),
    "choices": ("option",),
    "accuracy_ratio": ("ratio", "weight"),
    "format_ratio": ("ratio", "weight"),
    "tool_ratio": ("ratio", "weight"),
    "calls": ("status", "error", "output", "seconds", "crop"),
}
"""Other words by which a refusal may name a field."""


def check_written(name: str, specimen: Specimen, folder: Path) -> str:
    """Export a specimen's imported rows, and records that use every field of ours, and import them again.

    Args:
        name: Name of the format, which is written.
        specimen: Its rows.
        folder: For files.

    Returns:
        What came back, in words.

    Raises:
        Broken: If a row of the specimen is refused, another row is refused without a reason, or something
            comes back changed.
    """
    made, full, back = (folder / f"{step}.parquet" for step in ("made", "full", "back"))
    there = folder / ("there.jsonl" if writer_of(name).columns is None else "there.parquet")
    options = Options(images=specimen.images)
    import_data(name, [specimen.path], made, options=options, strict=True, show=False)
    own = [*_read(name, made)]
    _check_holds(name, own)
    plain = next((record for record in own if getattr(record, "calls", ())), own[0])
    fuller = [*(samples(plain) if isinstance(plain, Sample) else traces(plain))]
    _write(name, full, [*own, *(record for _, record in fuller)])
    try:
        problems = export_data(name, full, there, show=False)["problems"]
    except DataError as error:
        raise Broken(
            f"{error.what} ({error.where.removeprefix(f'{full}, ')})", error.fix or "correct `to_row`"
        ) from error
    refused = {problem["row"]: problem for problem in problems}
    for number, problem in refused.items():
        _check_told(plain, fuller[number - len(own)][1], problem)
    import_data(name, [there], back, options=Options(), strict=True, show=False)
    wrote = [record for number, record in enumerate(_read(name, full)) if number not in refused]
    _check_same(wrote, [*_read(name, back)])
    named = [fuller[number - len(own)][0] for number in sorted(refused)]
    cannot = f", by {', '.join(named)}" if named else ""
    return f"{len(wrote)} {FORMATS[name].makes}, {len(refused)} refused{cannot}"


def _read(name: str, path: Path) -> Iterable[Any]:
    return read_samples(path) if FORMATS[name].makes == "samples" else read_trajectories(path)


def _write(name: str, path: Path, records: Sequence[Any]) -> None:
    if FORMATS[name].makes == "samples":
        write_samples(path, records)
    else:
        write_trajectories(path, records)


def _check_holds(name: str, own: Sequence[Any]) -> None:
    """Check that a format refuses none of its own rows.

    Raises:
        Broken: If it does.
    """
    for number, record in enumerate(own):
        try:
            writer_of(name).to_row(record, number)
        except DataError as error:
            where = f" ({error.where})" if error.where else ""
            raise Broken(
                f"row {number} of the specimen: {error.what}{where}", "write what `read` makes"
            ) from None


def _check_told(plain: Any, fuller: Any, problem: Problem) -> None:
    """Check that a refusal names a field in which the record holds more than a plain one.

    Raises:
        Broken: If it does not.
    """
    more = [one.name for one in fields(plain) if getattr(plain, one.name) != getattr(fuller, one.name)]
    more = [name for name in more if name not in ("id", "sample_id")]
    words = [word for name in more for word in (name, name.removesuffix("s"), *WORDS.get(name, ()))]
    if not any(word in problem["what"].lower() for word in words):
        raise Broken(
            f"the format refuses a record that says more by `{'`, `'.join(more)}`, "
            f"and says: {problem['what']}",
            "let the DataError name what the format cannot hold: `vtune.schema.difference` finds it",
        )


def _check_same(wrote: Sequence[Any], back: Sequence[Any]) -> None:
    """Check that records came back unchanged.

    Raises:
        Broken: If they did not.
    """
    if len(back) != len(wrote):
        raise Broken(f"{len(wrote)} rows were written, but {len(back)} are read", LOSSLESS)
    for number, (one, other) in enumerate(zip(wrote, back, strict=True)):
        if lost := difference(one, other):
            raise Broken(f"row {number}: {lost}", LOSSLESS)

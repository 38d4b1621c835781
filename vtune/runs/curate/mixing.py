"""Writes what passed as one file, with all sources spread evenly over it."""

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from vtune.curate.item import Record
from vtune.curate.mix import copy_of, interleaved
from vtune.runs.curate.recipe import DataRecipe
from vtune.runs.curate.rows import Rows
from vtune.schema.message import Picture
from vtune.schema.parquet import write_samples, write_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

Notes = Mapping[tuple[str, int], Mapping[str, float]]
"""(source, position) -> filter -> number to store with the row."""


@dataclass(slots=True)
class Mixed:
    """The content of a mix, in rows."""

    abilities: Counter[str] = field(default_factory=Counter)
    data_sources: Counter[str] = field(default_factory=Counter)
    """By the rows' current `data_source`, by which training splits its metrics."""


def shares(counts: Counter[str]) -> dict[str, dict[str, float]]:
    """Name -> number of rows, and their share."""
    total = counts.total()
    return {name: {"rows": count, "share": count / total} for name, count in sorted(counts.items())}


def write_mix(recipe: DataRecipe, rows: Rows, notes: Notes, out: Path) -> tuple[Path, Mixed]:
    """Write the remaining rows, all sources spread evenly over the file; return the file and its content."""
    repeat = {source: recipe.mix.repeat.get(source, 1) for source in rows.left}
    sizes = {source: len(rows.positions(source)) * times for source, times in repeat.items()}
    streams = {source: _stream(rows, source, times, notes, out) for source, times in repeat.items()}
    mixed = Mixed()

    def records() -> Iterator[Record]:
        for source in interleaved(sizes, random.Random(f"mix {recipe.seed}")):
            record = next(streams[source])
            mixed.abilities[record.ability if isinstance(record, Sample) else ""] += 1
            mixed.data_sources[record.source] += 1
            yield record

    path = out / f"{recipe.records}.parquet"
    if recipe.records == "samples":
        write_samples(path, (record for record in records() if isinstance(record, Sample)))
    else:
        write_trajectories(path, (record for record in records() if isinstance(record, Trajectory)))
    return path, mixed


def _stream(rows: Rows, source: str, times: int, notes: Notes, out: Path) -> Iterator[Record]:
    for number in range(times):
        for position, item in rows.items(source):
            record = item.record
            images = tuple(_placed(picture, item.base, out) for picture in record.images)
            if isinstance(record, Sample):
                note = notes.get((source, position), {})
                record = replace(record, images=images, extra={**record.extra, **note})
            else:
                record = replace(record, images=images)
            yield copy_of(record, number)


def _placed(picture: Picture, base: Path, out: Path) -> Picture:
    """The picture with its path relative to the output folder."""
    if picture.data is not None or picture.path is None:
        return picture
    file = base / picture.path
    # After a symbolic link, `..` is the parent of its target.
    folder = os.path.relpath(os.path.realpath(file.parent), os.path.realpath(out))
    return replace(picture, path=str(Path(folder, file.name)))

"""`vtune data export`: samples and traces in the layouts that other trainers read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from vtune.data.formats.thyme import THYME_COLUMNS, thyme_row
from vtune.data.formats.verl import VERL_COLUMNS, verl_row
from vtune.data.formats.vtriune import VTRIUNE_COLUMNS, vtriune_row
from vtune.errors import DataError, RecipeError, nearest
from vtune.files.writing import check_file_output
from vtune.report.progress import Rows
from vtune.schema.fields import Row
from vtune.schema.message import Picture
from vtune.schema.parquet import at_row, load_picture, read_samples, read_trajectories, write_rows


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout that is written."""

    takes: Literal["samples", "traces"]
    columns: pa.Schema
    to_row: Callable[[Any, int], Row]
    """Record with its pictures' bytes, number of the row -> row."""


LAYOUTS = {
    "verl": Layout("samples", VERL_COLUMNS, verl_row),
    "vtriune": Layout("samples", VTRIUNE_COLUMNS, vtriune_row),
    "thyme": Layout("traces", THYME_COLUMNS, thyme_row),
}
"""Name -> layout; each is also read by `vtune data import`."""


def export_data(name: str, path: Path, out: Path) -> dict[str, Any]:
    """Write a file of samples, or of traces, in another layout, with its pictures inside.

    What that layout has no column for is kept in `extra_info.vtune`, so an import brings it all back.

    Returns:
        `file`, `layout` and `rows`.

    Raises:
        RecipeError: If there is no such layout, or `out` cannot be written or is what is read.
        DataError: At the first row that cannot be read, or that the layout cannot hold; no file is left.
    """
    layout = LAYOUTS.get(name)
    if layout is None:
        raise RecipeError(f"unknown layout {name!r}", fix=nearest(name, LAYOUTS))
    check_file_output(out, inputs=[path])
    rows = write_rows(out, layout.columns, _rows(layout, path))
    return {"file": str(out), "layout": name, "rows": rows}


def _rows(layout: Layout, path: Path) -> Iterator[Row]:
    records: Iterator[Any] = read_samples(path) if layout.takes == "samples" else read_trajectories(path)
    there = False
    with Rows("export") as progress:
        for number, record in enumerate(records):
            try:
                images = tuple(_filled(picture, path.parent) for picture in record.images)
                row = layout.to_row(replace(record, images=images), number)
            except DataError as error:
                raise at_row(path, number, error) from None
            yield row
            progress.advance()
            there = True
    if not there:
        raise DataError("there is no row to export", where=str(path), fix="make or download the file again")


def _filled(picture: Picture, base: Path) -> Picture:
    return replace(picture, data=load_picture(picture, base))

"""`vtune data export`: samples and traces in the layouts that other trainers read."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from vtune.data.formats.conversations import CONVERSATION_COLUMNS, conversation_row
from vtune.data.formats.samples import own_line
from vtune.data.formats.thyme import THYME_COLUMNS, thyme_row
from vtune.data.formats.verl import VERL_COLUMNS, verl_row
from vtune.data.formats.vtriune import VTRIUNE_COLUMNS, vtriune_row
from vtune.errors import DataError, RecipeError, nearest
from vtune.files.writing import atomic_file, check_file_output
from vtune.report.progress import Rows
from vtune.report.samples import Problem, first_problems
from vtune.runs.data.validating import list_problems, problem_of
from vtune.schema.fields import Row
from vtune.schema.message import Picture
from vtune.schema.parquet import at_row, load_picture, read_samples, read_trajectories, write_rows


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout that is written."""

    takes: Literal["samples", "traces"]
    columns: pa.Schema | None
    """Of a Parquet file; None: JSON lines."""
    to_row: Callable[[Any, int], Row]
    """Record with its pictures' bytes, number of the row -> row."""


LAYOUTS = {
    "samples": Layout("samples", None, own_line),
    "verl": Layout("samples", VERL_COLUMNS, verl_row),
    "vtriune": Layout("samples", VTRIUNE_COLUMNS, vtriune_row),
    "thyme": Layout("traces", THYME_COLUMNS, thyme_row),
    "conversations": Layout("traces", CONVERSATION_COLUMNS, conversation_row),
}
"""Name -> layout; each is also read by `vtune data import`."""


def export_data(name: str, path: Path, out: Path, *, strict: bool = False) -> dict[str, Any]:
    """Write a file of samples, or of traces, in another layout, with its pictures inside.

    What that layout has no column for is kept in `extra_info.vtune`, so an import brings it all back;
    `samples` is our own layout as JSON lines. A row that the layout cannot hold is left out and listed.

    Args:
        name: A key of `LAYOUTS`.
        path: File of samples, or of traces.
        out: File to write; it appears when it is complete.
        strict: Stop at the first row that the layout cannot hold instead, and write nothing.

    Returns:
        `file`; `layout`; `rows` of it; `problems`, the rows that were left out, and `problems_file`, which
        has a line for each.

    Raises:
        RecipeError: If there is no such layout, or `out` cannot be written, is what is read, or has the
            name of another kind of file.
        DataError: At the first row that cannot be read, if the layout can hold no row, or, with `strict`, at
            the first that it cannot hold; no file is left.
    """
    layout = LAYOUTS.get(name)
    if layout is None:
        raise RecipeError(f"unknown layout {name!r}", fix=nearest(name, LAYOUTS))
    if layout.columns is None and out.suffix != ".jsonl":
        raise RecipeError(
            f"{out} is not called .jsonl, and `{name}` writes JSON lines", fix="give --out another name"
        )
    if layout.columns is not None and out.suffix in (".json", ".jsonl"):
        # Trainers read a file as its name says.
        raise RecipeError(
            f"{out} is called {out.suffix}, and `{name}` writes Parquet", fix="call it .parquet"
        )
    check_file_output(out, inputs=[path])
    problems: list[Problem] = []
    found = _rows(layout, path, None if strict else problems)
    rows = _write_lines(out, found) if layout.columns is None else write_rows(out, layout.columns, found)
    listed = list_problems(out, problems)
    return {"file": str(out), "layout": name, "rows": rows, "problems": problems, "problems_file": listed}


def _rows(layout: Layout, path: Path, problems: list[Problem] | None) -> Iterator[Row]:
    """The rows of a layout.

    Args:
        layout: What is written.
        path: What is read.
        problems: Takes the rows that the layout cannot hold; None: the first of them is an error.
    """
    records: Iterator[Any] = read_samples(path) if layout.takes == "samples" else read_trajectories(path)
    there = False
    with Rows("export") as progress:
        for number, record in enumerate(records):
            try:
                images = tuple(_filled(picture, path.parent) for picture in record.images)
            except DataError as error:
                raise at_row(path, number, error) from None
            progress.advance()
            try:
                row = layout.to_row(replace(record, images=images), number)
            except DataError as error:
                if problems is None:
                    raise at_row(path, number, error) from None
                problems.append(problem_of(path, number, error))
                continue
            yield row
            there = True
    if not there and problems:
        lines = (f"  {line}" for line in first_problems(problems, "most are alike"))
        raise DataError("\n".join(["no row can be exported", *lines]), fix="choose another layout")
    if not there:
        raise DataError("there are no rows to export", where=str(path), fix="make or download the file again")


def _write_lines(out: Path, rows: Iterator[Row]) -> int:
    count = 0
    with atomic_file(out) as partial, partial.open("w", encoding="utf-8", newline="\n") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
            count += 1
    return count


def _filled(picture: Picture, base: Path) -> Picture:
    return replace(picture, data=load_picture(picture, base))

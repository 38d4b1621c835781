"""`vtune data export`: samples and traces in the formats that other trainers read."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from vtune.data.formats.table import FORMATS, Writer, plain_name, writer_of
from vtune.errors import DataError, RecipeError
from vtune.files.writing import OTHER_FORMATS, atomic_file, check_file_output
from vtune.parts import OURS
from vtune.report.progress import Rows
from vtune.report.samples import Problem, first_problems
from vtune.runs.data.reading_back import check_comes_back
from vtune.runs.data.validating import list_problems, problem_of
from vtune.schema.fields import Row
from vtune.schema.message import Picture
from vtune.schema.parquet import at_row, load_picture, read_samples, read_trajectories, write_rows
from vtune.uses import broken, given


def export_data(
    name: str, path: Path, out: Path, *, strict: bool = False, show: bool = True
) -> dict[str, Any]:
    """Write a file of samples, or of traces, in another format, with its pictures inside.

    What it has no column for is kept beside them (in ours: as `vtune`), so an import brings it all back: what
    a user's own format has written is read again before the file gets its name. A row that the format cannot
    hold is left out and listed.

    Args:
        name: A format that is written, or an alias of it.
        path: File of samples, or of traces: of what the format makes.
        out: File to write; it appears when it is complete.
        strict: Stop at the first row that the format cannot hold instead, and write nothing.
        show: Whether to print on stderr how many rows there were.

    Returns:
        `file`; `layout`, the name; `rows` of it; `problems`, the rows that were left out, and
        `problems_file`, which has a line for each.

    Raises:
        RecipeError: If there is no such format, it is only read, or `out` cannot be written, is what is read,
            or has the name of another kind of file.
        DataError: At the first row that cannot be read, if the format can hold no row, at the first that does
            not come back from a user's own format, or, with `strict`, at the first that it cannot hold; no
            file is left.
        BrokenPart: If a format of a user's own gives what is not a row, or breaks when it reads again.
    """
    writer, plain = writer_of(name), plain_name(name)
    if writer.columns is None and out.suffix != ".jsonl":
        raise RecipeError(
            f"{out} does not end in .jsonl, but `{name}` writes JSON lines", fix="give --out another name"
        )
    if writer.columns is not None and out.suffix.lower() in OTHER_FORMATS:
        # Trainers read a file as its name says.
        raise RecipeError(f"{out} ends in {out.suffix}, but `{name}` writes Parquet", fix="call it .parquet")
    check_file_output(out, inputs=[path])
    problems: list[Problem] = []
    found = _rows(plain, writer, path, None if strict else problems, show=show)

    def check(partial: Path) -> None:
        if plain not in OURS[FORMATS.kind]:  # ours are tried with all that a record may say
            check_comes_back(plain, path, {problem["row"] for problem in problems}, partial, out)

    if writer.columns is None:
        rows = _write_lines(out, (_line(plain, row) for row in found), check)
    else:
        rows = write_rows(out, writer.columns, found, check=check)
    listed = list_problems(out, problems)
    return {"file": str(out), "layout": name, "rows": rows, "problems": problems, "problems_file": listed}


def _rows(
    name: str, writer: Writer, path: Path, problems: list[Problem] | None, *, show: bool
) -> Iterator[Row]:
    """The rows of a format.

    Args:
        name: Its key of `FORMATS`.
        writer: How it is written.
        path: What is read.
        problems: Takes the rows that the format cannot hold; None: the first of them is an error.
        show: Whether to print how many rows there were.
    """
    samples = FORMATS[name].makes == "samples"
    records: Iterator[Any] = read_samples(path) if samples else read_trajectories(path)
    there = False
    with Rows("export", show=show) as progress:
        for number, record in enumerate(records):
            try:
                images = tuple(_filled(picture, path.parent) for picture in record.images)
            except DataError as error:
                raise at_row(path, number, error) from None
            progress.advance()
            try:
                row = given(writer.to_row(replace(record, images=images), number), dict, FORMATS.kind, name)
            except DataError as error:
                if problems is None:
                    raise at_row(path, number, error) from None
                problems.append(problem_of(path, number, error))
                continue
            yield row
            there = True
    if not there and problems:
        lines = (f"  {line}" for line in first_problems(problems))
        raise DataError(
            "\n".join(["no row can be exported", *lines]),
            fix="correct the rows as these lines say, or choose another format",
        )
    if not there:
        raise DataError("there are no rows to export", where=str(path), fix="make or download the file again")


def _line(name: str, row: Row) -> str:
    """A row as JSON.

    Raises:
        BrokenPart: If a format of a user's own gave what JSON cannot hold.
    """
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise broken(error, (FORMATS.kind, name)) or error from error


def _write_lines(out: Path, lines: Iterator[str], check: Callable[[Path], None]) -> int:
    count = 0
    with atomic_file(out) as partial:
        with partial.open("w", encoding="utf-8", newline="\n") as stream:
            for line in lines:
                stream.write(f"{line}\n")
                count += 1
        check(partial)
    return count


def _filled(picture: Picture, base: Path) -> Picture:
    return replace(picture, data=load_picture(picture, base))

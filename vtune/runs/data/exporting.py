"""`vtune data export`: samples and traces in the formats that other trainers read."""

import json
from collections.abc import Callable, Iterator
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
from vtune.schema.parquet import at_row, read_samples, read_trajectories, with_pictures, write_rows
from vtune.uses import broken, given


def export_data(
    name: str, path: Path, out: Path, *, strict: bool = False, show: bool = True
) -> dict[str, Any]:
    """Write a file of samples, or of traces, in another format, with its pictures inside.

    What the format has no column for is stored in extra ones (`vtune` in built-in formats), so that an import
    restores everything; output of a custom format is read back to verify this before the file gets its name.
    A row that the format cannot hold is left out and listed.

    Args:
        name: A format that can be written, or an alias.
        path: File of samples or of traces, whichever the format makes.
        out: File to write; it appears when it is complete.
        strict: Stop at the first row that the format cannot hold instead, and write nothing.
        show: Whether to print the number of rows on stderr.

    Returns:
        `file`; `layout`, the format's name; `rows` written; `problems`, the rows left out, and
        `problems_file`, which has a line for each.

    Raises:
        RecipeError: If there is no such format, it cannot be written, or `out` cannot be written, is the
            input, or has the ending of another kind of file.
        DataError: At the first row that cannot be read, that a custom format does not restore, or, with
            `strict`, that the format cannot hold; or if it can hold no row. No file is left.
        BrokenPart: If a custom format returns something that is not a row, or fails when reading back.
    """
    writer, plain = writer_of(name), plain_name(name)
    if writer.columns is None and out.suffix != ".jsonl":
        raise RecipeError(
            f"{out} does not end in .jsonl, but `{name}` writes JSON lines", fix="give --out another name"
        )
    if writer.columns is not None and out.suffix.lower() in OTHER_FORMATS:
        # Trainers choose the reader by the file's ending.
        raise RecipeError(f"{out} ends in {out.suffix}, but `{name}` writes Parquet", fix="call it .parquet")
    check_file_output(out, inputs=[path])
    problems: list[Problem] = []
    found = _rows(plain, writer, path, None if strict else problems, show=show)

    def check(partial: Path) -> None:
        if plain not in OURS[FORMATS.kind]:  # built-in formats are tested with every kind of record
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
    """The rows in a format.

    Args:
        name: Its key in `FORMATS`.
        writer: Its writer.
        path: The file to read.
        problems: Receives the rows that the format cannot hold; None: the first of them is raised.
        show: Whether to print the number of rows.
    """
    samples = FORMATS[name].makes == "samples"
    records: Iterator[Any] = read_samples(path) if samples else read_trajectories(path)
    there = False
    with Rows("export", show=show) as progress:
        for number, stored in enumerate(records):
            try:
                record = with_pictures(stored, path.parent)
            except DataError as error:
                raise at_row(path, number, error) from None
            progress.advance()
            try:
                row = given(writer.to_row(record, number), dict, FORMATS.kind, name)
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
        BrokenPart: If a custom format returned something that JSON cannot represent.
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

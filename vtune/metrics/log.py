"""`metrics.jsonl`: one line per step and source, appended as a run proceeds."""

import json
import math
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from vtune.errors import DataError, RunFailed
from vtune.files.json_text import parse_json
from vtune.files.reading import MAX_DOCUMENT, read_text
from vtune.files.writing import appending, write_atomically

REPAIR = "restore the line, or delete it: training does not depend on it"


@dataclass(frozen=True, slots=True)
class MetricsLine:
    """The numbers of one source at one step."""

    step: int
    source: str
    values: Mapping[str, float]


class MetricsLog:
    """Appends lines to a metrics file; a context manager. Every step is on disk when `write` returns."""

    def __init__(self, path: Path, *, first_step: int, also: Collection[str] = ()) -> None:
        """Open the file and remove the steps that this run will write again.

        Args:
            path: The file; created if missing.
            first_step: The first step that will be written. Lines of this step and of later ones, left by a
                run that was stopped after its last checkpoint, are removed.
            also: Sources whose lines of the first step are kept, as they are not written again.

        Raises:
            DataError: If the file holds anything other than metrics.
        """
        kept = [
            line
            for line in (read_metrics(path) if path.exists() else [])
            if line.step < first_step or (line.step == first_step and line.source in also)
        ]
        write_atomically(path, "".join(map(_dump, kept)), option=None)
        self._path = path
        self._file: IO[str] = path.open("a", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with appending(self._path):
            self._file.close()

    def write(self, step: int, rows: Mapping[str, Mapping[str, float]]) -> None:
        """Append one line for each source.

        Raises:
            RunFailed: If a number is not finite: what cannot be measured must be left out, never NaN; or if
                there is no room.
        """
        for source, values in rows.items():
            for name, value in values.items():
                if not math.isfinite(value):
                    raise RunFailed(f"`{name}` is {value}", where=f"step {step}, source {source!r}")
        lines = (_dump(MetricsLine(step, source, values)) for source, values in rows.items())
        with appending(self._path):
            self._file.write("".join(lines))
            self._file.flush()


def read_metrics_from(path: Path, offset: int) -> tuple[list[MetricsLine], int]:
    """The lines of a metrics file from a byte offset on, and where the last full line ends.

    Args:
        path: The file.
        offset: Where a line begins, e.g. what an earlier call returned.

    Raises:
        DataError: If the file cannot be read, or a line is not a metrics line.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        lines = whole.decode().split("\n")[:-1]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"metrics cannot be read: {error}", where=str(path)) from None
    return [_parse(line, f"{path}, after byte {offset}") for line in lines], offset + len(whole)


def read_metrics(path: Path) -> list[MetricsLine]:
    """All lines of a metrics file, in file order.

    A last line without a line break is left out: it is being written, or was cut off when the run was killed.

    Raises:
        DataError: If the file cannot be read, or a line is not a metrics line; names the line.
    """
    try:
        text = read_text(path, limit=MAX_DOCUMENT)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"metrics cannot be read: {error}", where=str(path)) from None
    lines = text.split("\n")[:-1]
    return [_parse(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]


def _dump(line: MetricsLine) -> str:
    return json.dumps({"step": line.step, "source": line.source, **line.values}, allow_nan=False) + "\n"


def _parse(text: str, where: str) -> MetricsLine:
    try:
        row: Any = parse_json(text)
    except ValueError as error:
        raise DataError(f"not JSON: {error}", where=where, fix=REPAIR) from None
    if (
        not isinstance(row, dict)
        or not isinstance(row.get("step"), int)
        or not isinstance(row.get("source"), str)
    ):
        raise DataError("a metrics line needs an integer `step` and a `source`", where=where, fix=REPAIR)
    step, source = row.pop("step"), row.pop("source")
    for name, value in row.items():
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not abs(value) <= sys.float_info.max  # false for NaN, and for integers beyond the limit
        ):
            raise DataError(f"`{name}` is not a number: {value!r}", where=where, fix=REPAIR)
    return MetricsLine(step, source, row)

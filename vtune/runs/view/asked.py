"""The questions of samples, read from the data once and then found by id in a file beside the index."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from vtune.errors import DataError, RecipeError
from vtune.files.json_text import parse_json
from vtune.files.writing import atomic_file
from vtune.report.progress import Rows
from vtune.runs.evaluate.questions import Source, read_records
from vtune.view.document import question_of
from vtune.view.index import Index
from vtune.view.place import stamp

QUESTIONS = "questions"
"""Files of the index that hold the questions of samples."""
FORM = 3
"""Version of these files: other versions are built again."""
ROWS = 1024
"""Samples written at a time (ours)."""

_COLUMNS = pa.schema([("id", pa.string()), ("asked", pa.string())])
"""`asked`: the result of `question_of`, as JSON."""


class Asked:
    """The questions of the samples of a place.

    The data is read when the first sample is asked for: lists of trajectories do not need it.

    Args:
        source: The data; None if unknown.
        index: The index of the place; its folder caches what was read.
        why: Why the data is unknown.
    """

    def __init__(self, source: Source | None, index: Index, why: str = "") -> None:
        self._source = source
        self._index = index
        self.why_not = why
        """Why no sample is known; empty if samples are known, or none was asked for yet."""
        # A page sends several requests at once, each handled in its own thread.
        self._lock = threading.Lock()
        self._table: pa.Table | None = None

    @property
    def has_source(self) -> bool:
        """Whether the data is known."""
        return self._source is not None

    def of(self, sample: str) -> Mapping[str, Any] | None:
        """The result of `question_of` for a sample; None if the data does not hold it.

        Raises:
            DataError: If the cache is damaged.
        """
        with self._lock:
            if self._table is None:
                self._table = self._opened()
            row = pc.index(self._table["id"], sample).as_py()
            if row < 0:
                return None
            found: Mapping[str, Any] = parse_json(self._table["asked"][row].as_py())
            return found

    def _opened(self) -> pa.Table:
        nothing = pa.Table.from_batches([], _COLUMNS)
        source = self._source
        if source is None:
            return nothing
        try:
            prints = [stamp(Path(name)) for name in source.data]
        except OSError as error:
            self.why_not = f"the data are not there: {error.filename}; name them with --data"
            return nothing
        name = hashlib.sha256(f"{FORM} {source.model_dump_json()} {prints}".encode()).hexdigest()[:16]
        folder = self._index.folder
        file = folder / f"{QUESTIONS}.{name}.arrow"
        try:
            return _mapped(file)
        except FileNotFoundError:
            pass
        except pa.ArrowException as error:
            fix = f"remove {folder}"
            raise DataError(
                f"the stored questions of samples are damaged: {error}", where=str(file), fix=fix
            ) from None
        try:
            written = self._written(file, source)
        except (DataError, RecipeError) as error:
            self.why_not = f"the data cannot be read: {error.what}"
            return nothing
        for old in folder.glob(f"{QUESTIONS}.*"):
            if old != file:
                old.unlink(missing_ok=True)
        return written

    def _written(self, file: Path, source: Source) -> pa.Table:
        """Write the questions of all samples to a file.

        The file is mapped before it gets its final name: from then on another process, which reads other
        data, may remove it.
        """
        with atomic_file(file, option=None) as partial:
            with (
                pa.OSFile(str(partial), "wb") as sink,
                pa.ipc.new_file(sink, _COLUMNS) as writer,
                Rows(f"samples of {self._index.place.name}", brief=True) as progress,
            ):
                for batch in _batches(source):
                    writer.write_batch(batch)
                    progress.advance(batch.num_rows)
            return _mapped(partial)


def _mapped(file: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(file))).read_all()


def _batches(source: Source) -> Iterator[pa.RecordBatch]:
    held: list[dict[str, str]] = []
    for sample in read_records(source):
        held.append({"id": sample.id, "asked": json.dumps(question_of(sample), ensure_ascii=False)})
        if len(held) == ROWS:
            yield pa.RecordBatch.from_pylist(held, schema=_COLUMNS)
            held = []
    if held:
        yield pa.RecordBatch.from_pylist(held, schema=_COLUMNS)

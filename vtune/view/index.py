"""The index of a place: its facts in memory-mapped Arrow files, one per file of trajectories.

A part is named after the name, size and modification time of its file, so an index is never stale: a new or
rewritten file has no part yet, and parts of missing files are removed. Parts are written atomically. Nothing
but the folder of the index is written to.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from vtune.errors import DataError, RecipeError, RunFailed
from vtune.files.writing import atomic_file
from vtune.view.facts import FACTS, facts_of
from vtune.view.place import Place, stamp

VERSION = 7
"""Version of the facts, raised with any change to them; parts of another version are rebuilt."""

LIKELY_SHOWN_FROM = 0.5
"""The score of a call that showed part of a target, unless a recipe sets another (CodeV, template 13.2)."""

_SUFFIX = ".facts.arrow"


class Index:
    """The facts of all trajectories of a place, kept up to date.

    Args:
        place: The place to index.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.shown_from = LIKELY_SHOWN_FROM
        """The score from which a call counts as showing a target; a change applies from the next refresh."""
        self._folder: Path | None = None
        self._own = False
        self._parts: dict[str, tuple[Path, pa.Table]] = {}
        self._failed: dict[str, DataError] = {}
        self._table = pa.Table.from_batches([], FACTS)

    @property
    def table(self) -> pa.Table:
        """One row per trajectory, with the columns of `FACTS`."""
        return self._table

    @property
    def folder(self) -> Path:
        """Where its parts are: next to the place, or in a temporary folder of this process if that is not
        writable.
        """
        if self._folder is None:
            self._folder = self._writable()
        return self._folder

    @property
    def failed(self) -> list[DataError]:
        """Why skipped files cannot be read; each is retried once it has been rewritten."""
        return list(self._failed.values())

    def refresh(self, advance: Callable[[], None] = lambda: None) -> bool:
        """Index new and rewritten files; return whether anything changed.

        A file that cannot be read is skipped, see `failed`: it does not hide the others.

        Args:
            advance: Called for each row that is indexed.

        Raises:
            DataError: If a file is a link that leads out of its place.
        """
        wanted = {self._name(file): file for file in self.place.files()}
        if wanted.keys() == self._parts.keys() | self._failed.keys():
            return False
        for name, file in wanted.items():
            if name not in self._parts and name not in self._failed:
                try:
                    self._parts[name] = (file, self._opened(file, name, advance))
                except DataError as error:
                    self._failed[name] = error
        self._failed = {name: self._failed[name] for name in wanted if name in self._failed}
        self._parts = {name: self._parts[name] for name in wanted if name in self._parts}
        tables = [table for _, table in self._parts.values()]
        self._table = pa.concat_tables(tables) if tables else pa.Table.from_batches([], FACTS)
        self._remove_others(set(wanted))
        return True

    def locate(self, key: str) -> tuple[Path, int]:
        """The file and row of a trajectory.

        Raises:
            DataError: If no trajectory has that key.
        """
        stem, _, number = key.rpartition("/")
        for file, table in self._parts.values():
            if file.stem == stem and number.isdecimal() and int(number) < table.num_rows:
                return file, int(number)
        raise DataError(
            f"{self.place.name} has no trajectory {key}", fix="`vtune show PATH` lists those that it has"
        )

    def _opened(self, file: Path, name: str, advance: Callable[[], None]) -> pa.Table:
        if any("\ud800" <= character <= "\udfff" for character in str(file)):  # pyarrow opens no such file
            raise DataError(
                "its path is not valid UTF-8", where=str(file), fix="rename its folder or the file"
            )
        path = self.folder / name
        if not path.exists():
            with (
                atomic_file(path, option=None) as partial,
                pa.OSFile(str(partial), "wb") as sink,
                pa.ipc.new_file(sink, FACTS) as writer,
            ):
                for batch in self._facts(file, advance):
                    writer.write_batch(batch)
        try:
            return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        except pa.ArrowException as error:
            raise DataError(
                f"a part of the index is damaged: {error}", where=str(path), fix=f"remove {self.folder}"
            ) from None

    def _facts(self, file: Path, advance: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        for batch in facts_of(self.place, file, shown_from=self.shown_from):
            for _ in range(batch.num_rows):
                advance()
            yield batch

    def _name(self, file: Path) -> str:
        print_of = hashlib.sha256(f"{VERSION} {self.shown_from} {stamp(file)}".encode()).hexdigest()
        return f"{file.stem[:80]}.{print_of[:16]}{_SUFFIX}"

    def _remove_others(self, wanted: set[str]) -> None:
        for path in self.folder.glob(f"*{_SUFFIX}"):
            if path.name not in wanted:
                path.unlink(missing_ok=True)

    def _writable(self) -> Path:
        folder = self.place.index
        try:
            with atomic_file(folder / "probe", option=None) as probe:
                probe.touch()
            (folder / "probe").unlink(missing_ok=True)
        except (RecipeError, RunFailed):
            self._own = True
            return Path(tempfile.mkdtemp(prefix="vtune-view-"))
        return folder

    def close(self) -> None:
        """Remove the folder if it is a temporary one of this process."""
        # Uses the stored path: a place that was moved in the meantime would now name another folder.
        if self._folder is not None and self._own:
            shutil.rmtree(self._folder)

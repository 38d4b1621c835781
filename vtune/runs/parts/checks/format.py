"""What a data format promises."""

import pickle
import tempfile
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from vtune.data.formats.building import Options
from vtune.data.formats.specimens import Specimen
from vtune.data.formats.table import FORMATS
from vtune.errors import DataError, VtuneError, nearest
from vtune.runs.parts.checks.check import Broken, Check, in_time, tried
from vtune.runs.parts.checks.written import check_written
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.verifiers import VERIFIERS, check_ground_truth

NONSENSE = "no row of any kind\n"
SLOWEST_ROW = 1.0
"""Seconds per row at most, including reading its pictures; ours."""


class _Trial:
    """A format, and the rows that its specimen writes into a folder."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._layout = FORMATS[name]
        self._folder = folder

    @cached_property
    def specimen(self) -> Specimen:
        if self._layout.specimen is None:
            raise Broken(
                "the format has no specimen", "give Format a `specimen` that writes a few rows into a folder"
            )
        return self._layout.specimen(self._folder)

    @property
    def options(self) -> Options:
        """What the caller of an import specifies."""
        return Options(images=self.specimen.images, columns=self.specimen.columns)

    def entries(self) -> list[Sample | Trajectory]:
        entries = [entry for _, entry in self._layout.read(self.specimen.path, self.options)]
        for entry in entries:
            if isinstance(entry, DataError):
                raise Broken(entry.what, entry.fix)
            if not isinstance(entry, Sample | Trajectory):
                raise Broken(f"`read` yields {type(entry).__name__}", "yield (Place, Sample or DataError)")
        if not entries:
            raise Broken("no row was read", "yield an entry per row, or write more in `specimen`")
        return [entry for entry in entries if not isinstance(entry, DataError)]

    def read(self) -> str:
        return f"{len(self.entries())} {self._layout.makes}"

    def judged(self) -> str:
        samples = [entry for entry in self.entries() if isinstance(entry, Sample)]
        for sample in samples:
            if sample.verifier not in VERIFIERS:
                raise Broken(
                    f"unknown verifier {sample.verifier!r}",
                    "to use a verifier of your own, check both files: `vtune parts check "
                    f"FORMAT.py VERIFIER.py`; {nearest(sample.verifier, VERIFIERS)}",
                )
            check_ground_truth(sample)
        ids = [sample.id for sample in samples]
        if len(set(ids)) < len(ids):
            raise Broken(f"two rows have the id {max(ids, key=ids.count)!r}", "take `place.id`, or a column")
        return f"{len(samples)} samples"

    def same(self) -> str:
        if self.entries() != self.entries():
            raise Broken(
                "the same file gives different rows the second time",
                "`read` must not depend on chance or time",
            )
        return "twice the same rows"

    def nonsense(self) -> str:
        path = self.specimen.path
        if path.is_dir():
            return "not tested: the format reads a folder"
        path.write_text(NONSENSE, encoding="utf-8")
        try:
            entries = [entry for _, entry in self._layout.read(path, self.options)]
        except VtuneError as error:
            return error.what
        errors = [entry for entry in entries if isinstance(entry, DataError)]
        if not errors:
            raise Broken(
                f"a file of nonsense gives {len(entries)} row(s) and no error",
                "yield a DataError for a row that cannot be read, or raise one for the file",
            )
        return errors[0].what

    def elsewhere(self) -> str:
        entries = self.entries()
        if pickle.loads(pickle.dumps(entries)) != entries:
            raise Broken("rows are different after pickling", "fill samples with plain values")
        return "the rows can be sent"

    def written(self) -> str:
        return check_written(self._name, self.specimen, self._folder)

    def fast(self) -> str:
        began = time.perf_counter()
        rows = len(self.entries())
        return in_time((time.perf_counter() - began) / rows, SLOWEST_ROW, "a row", "read the file once")


def check_format(name: str) -> list[Check]:
    """Rows of its specimen can be read and judged, what is written comes back, and nonsense is an error."""

    def fresh(check: Callable[[_Trial], str]) -> Callable[[], str]:
        def run() -> str:
            with tempfile.TemporaryDirectory() as folder:
                return check(_Trial(name, Path(folder)))

        return run

    return [
        tried("the rows of the specimen are read", fresh(_Trial.read)),
        tried("ground truths can be judged", fresh(_Trial.judged)),
        tried("the same file gives the same rows", fresh(_Trial.same)),
        tried("nonsense is an error", fresh(_Trial.nonsense)),
        tried("rows cross processes", fresh(_Trial.elsewhere)),
        *([tried("what is exported comes back", fresh(_Trial.written))] if FORMATS[name].writes else []),
        tried("fast enough", fresh(_Trial.fast)),
    ]

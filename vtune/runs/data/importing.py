"""`vtune data import`: published files -> samples or traces, and a list of what is left out."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vtune.data.formats.building import Options
from vtune.data.formats.checked import rows_of
from vtune.data.formats.hub import read_hub
from vtune.data.formats.judging import known_verifier
from vtune.data.formats.likely import check_look
from vtune.data.formats.source import Place
from vtune.data.formats.table import Format, format_of, plain_name
from vtune.data.offer import offering
from vtune.errors import DataError, RecipeError
from vtune.files.writing import check_parquet_output
from vtune.parts import OURS
from vtune.report.progress import Rows
from vtune.report.samples import Problem, first_problems
from vtune.runs.data.doubts import doubts
from vtune.runs.data.pictures_ahead import Opening, opening
from vtune.runs.data.validating import (
    check_learnable,
    check_sample,
    images_of,
    list_problems,
    problem_of,
)
from vtune.schema.fields import check_unicode
from vtune.schema.parquet import write_samples, write_trajectories
from vtune.schema.sample import Sample
from vtune.schema.sample_row import sample_to_row
from vtune.schema.trajectory import Trajectory
from vtune.schema.trajectory_row import trajectory_to_row
from vtune.verifiers import verifier_of
from vtune.verifiers.answer_instruction import self_contained


def import_data(
    name: str, paths: Sequence[Path], out: Path, *, options: Options, strict: bool, show: bool = True
) -> dict[str, Any]:
    """Read files of a published layout and write one file of samples, or of traces, with their pictures.

    Bad rows, which cannot be read or would fail `vtune data validate`, are left out and listed with file, row
    and fix.

    Args:
        name: A key of `FORMATS`.
        paths: Files or folders.
        out: Parquet file to write; it appears when it is complete.
        options: What the caller says about the rows.
        strict: Stop at the first bad row instead, and write nothing.
        show: Whether to print the number of rows on stderr.

    Returns:
        `file`; `makes`, samples or traces; `rows` read; `kept`; `by_source` of the kept rows; `by_verifier`
        (for samples); `passed_over`, counts of what the format skips, by reason and kind; `doubts` about kept
        rows, counted; `turned`, the number kept with a picture that EXIF rotates; `problems`, and
        `problems_file`, which has a line for each.

    Raises:
        RecipeError: If there is no such format, an option does not apply to it, or `out` cannot be written or
            is among the inputs.
        DataError: If a path does not exist, a file looks like another format, no row is good, or, with
            `strict`, at the first bad row.
    """
    layout = format_of(name)
    if options.verifier is not None:
        known_verifier(options.verifier)
    for option in ("images", "verifier", "tools", "columns"):
        if getattr(options, option) is not None and option not in layout.takes:
            raise RecipeError(f"--{option} has no effect with the format {name}", fix="leave it out")
    check_parquet_output(out, inputs=[path for path in paths if path.exists()])
    plain = plain_name(name)
    if layout.read is not read_hub and plain in OURS["format"]:
        for path in paths:
            check_look(plain, path, options)
    reading = _Reading(layout, paths, options, strict, out.parent, show)
    if layout.makes == "samples":
        kept = write_samples(out, reading.samples())
    else:
        kept = write_trajectories(out, reading.traces())
    listed = list_problems(out, reading.problems)
    return {
        "file": str(out),
        "format": name,
        "makes": layout.makes,
        "rows": kept + len(reading.problems),
        "kept": kept,
        "by_source": dict(reading.by_source),
        "by_verifier": dict(reading.by_verifier),
        "passed_over": {why: dict(counts.most_common()) for why, counts in reading.passed_over.items()},
        "doubts": dict(reading.doubts),
        "turned": reading.turned,
        "problems": reading.problems,
        "problems_file": listed,
    }


class _Reading:
    """Good rows as they are read, and findings about all rows."""

    def __init__(
        self, layout: Format, paths: Sequence[Path], options: Options, strict: bool, base: Path, show: bool
    ) -> None:
        self._layout = layout
        self._paths = paths
        self._options = replace(options, passed_over=self._pass_over)
        self._strict = strict
        self._base = base
        self._show = show
        self._places: dict[str, str] = {}
        self.by_source: Counter[str] = Counter()
        self.by_verifier: Counter[str] = Counter()
        self.passed_over: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.doubts: Counter[str] = Counter()
        self.turned = 0
        self.problems: list[Problem] = []

    def samples(self) -> Iterator[Sample]:
        """Samples that can be stored, with unique ids."""
        for record in self._good_ones():
            if isinstance(record, Sample):
                self.by_verifier[record.verifier] += 1
                yield record

    def traces(self) -> Iterator[Trajectory]:
        """Traces that can be stored."""
        return (record for record in self._good_ones() if isinstance(record, Trajectory))

    def _good_ones(self) -> Iterator[Sample | Trajectory]:
        entries = opening(self._records(), lambda entry: images_of(entry[1]), self._base)
        with Rows("import", show=self._show) as progress:
            for (place, record), pictures in entries:
                progress.advance()
                if isinstance(record, DataError):
                    self._odd(place, record)
                elif self._good(place, record, pictures):
                    yield record
        if not self.by_source and not self.problems:
            raise DataError(
                "there is no row to import",
                where=", ".join(map(str, self._paths)),
                fix="the files are empty: download or make them again",
            )
        if not self.by_source:
            lines = first_problems(self.problems)
            raise DataError(
                "\n".join(["no row could be imported", *(f"  {line}" for line in lines)]),
                fix="correct the rows as these lines say, or give the right format",
            )

    def _records(self) -> Iterator[tuple[Place, Sample | Trajectory | DataError]]:
        for path in self._paths:
            for place, entry in rows_of(self._layout, path, self._options):
                record = self._offered(entry)
                yield place, record if isinstance(record, DataError) else self._asking(record)

    def _asking(self, record: Sample | Trajectory) -> Sample | Trajectory | DataError:
        """A sample whose question says how to answer, if no prompt style could; or why that is impossible."""
        if isinstance(record, Trajectory):
            return record
        try:
            complete = self._layout.own_questions or verifier_of(record).self_contained
            return self_contained(record) if complete else record
        except DataError as error:
            return error

    def _offered(self, entry: Sample | Trajectory | DataError) -> Sample | Trajectory | DataError:
        """The entry with the caller's tools, or why it cannot have them."""
        if self._options.tools is None or not isinstance(entry, Sample):
            return entry
        try:
            return offering(entry, self._options.tools)
        except DataError as error:
            return error

    def _good(self, place: Place, record: Sample | Trajectory, pictures: Opening) -> bool:
        here = place.where
        try:
            if isinstance(record, Trajectory):
                check_unicode("", trajectory_to_row(record))
                check_learnable(record, pictures, here)
            else:
                check_unicode("", sample_to_row(record))
                if record.id in self._places:  # also catches a file given twice
                    raise DataError(
                        f"id {record.id!r} is also in {self._places[record.id]}",
                        fix="to repeat samples, use a data recipe; rename files that share a name, "
                        "or give each row an id",
                    )
                self._check(record, pictures, here)
                self.doubts.update(doubts(record, self._options))
        except DataError as error:
            self._odd(place, error)
            return False
        self.by_source[record.source] += 1
        self.turned += any(one.turned for one in pictures.facts())
        return True

    def _pass_over(self, why: str, what: str) -> None:
        self.passed_over[why][what] += 1

    def _check(self, record: Sample, pictures: Opening, here: str) -> None:
        try:
            check_sample(record, pictures, here, self._places)
        except DataError:
            self._places.pop(record.id, None)  # lets a later row with this id be written
            raise

    def _odd(self, place: Place, error: DataError) -> None:
        if self._strict:
            here = place.where
            detail = "" if error.where.startswith(here) else f", {error.where}"
            raise DataError(error.what, where=f"{here}{detail}" if error.where else here, fix=error.fix)
        self.problems.append(problem_of(*place.file_and_row, error))

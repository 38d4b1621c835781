"""The rows of a data recipe's sources: where each one is, which are left, and a look at some of them."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

from vtune.curate.filters import FILTERS, no_reason
from vtune.curate.item import Item, Record, Selected, concerns, identity
from vtune.data.offer import offering
from vtune.errors import DataError, VtuneError
from vtune.parts import OURS
from vtune.schema.fields import Row
from vtune.schema.parquet import columns, data_sources, group_sizes, scan_groups
from vtune.schema.sample import Sample, check_unanswered
from vtune.schema.sample_row import SAMPLE_NEEDS, sample_from_row
from vtune.schema.source_names import check_source
from vtune.schema.trajectory_row import LATE_COLUMNS, TRAJECTORY_COLUMNS, trajectory_from_row
from vtune.sections import Strict
from vtune.tools import ToolName
from vtune.uses import broken

Kind = Literal["samples", "traces"]
PART_ROWS = 8192
"""Maximum rows per part, unless a row group has more (ours): opening a file costs as much as many rows."""
VALID = 0
"""Column for rows that cannot be used at all; filters are numbered from 1."""


class Source(Strict):
    """Files whose rows get one `data_source`, unless `rename` is false: the source's name in the recipe."""

    files: tuple[str, ...] = Field(min_length=1)
    """Parquet files, in order. A differing original `data_source` is kept in `extra_info`."""
    data_source: str | None = None
    """Only rows with this `data_source`, if files hold several; null: all rows."""
    rename: bool = True
    """False: rows keep their `data_source`, if one source was collected from several datasets."""
    tools: tuple[ToolName, ...] | None = None
    """The tools that rows offer instead of their own, in the prompt that goes with them (see
    `vtune.data.offer`); null: their own."""
    sample: int | None = Field(default=None, gt=0)
    """How many rows to use, chosen at random; null: all."""
    published: tuple[int | None, int | None] | None = None
    """Rows before and after curation as a paper reports them, to compare with; null: no such numbers."""


@dataclass(frozen=True, slots=True)
class Part:
    """Row groups of one source file that are processed together."""

    source: str
    name: str
    """Unique name of the file; ids for rows without one are numbered after it."""
    path: Path
    groups: range
    row: int
    """First row of the part in the file."""
    first: int
    """Position of that row in the source."""
    size: int


@dataclass(frozen=True, slots=True)
class Task:
    """A pass over the remaining rows of one part."""

    kind: Kind
    part: Part
    source: Source
    """The part's source."""
    left: bytes
    """One byte per row: 1 if the row remains."""
    truths: Mapping[int, str]
    """Position -> ground truth corrected by a person."""
    rules: Sequence[tuple[int, Selected]]
    """(column, section) of the rules to apply, in order."""
    corpus: tuple[int, Selected] | None
    """The corpus filter for which keys of the passing rows are taken."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A dropped row."""

    position: int
    column: int
    identity: str | None
    """Its id; None if the row was not read again."""
    reason: str


@dataclass(slots=True)
class Found:
    """The result of a task."""

    part: Part
    dropped: list[Dropped] = field(default_factory=list)
    keys: list[tuple[int, str, Any]] = field(default_factory=list)
    """(position, id, key) of the passing rows that the corpus filter looks at."""
    identities: list[tuple[int, str]] = field(default_factory=list)
    """(position, id) of the passing samples: a dropped sample leaves its id free for a later row. Empty for
    traces, whose ids may repeat."""
    concerned: Counter[int] = field(default_factory=Counter)
    """Column -> number of rows that the filter looked at."""


class Rows:
    """The rows of all sources as positions, and which of them remain.

    Args:
        kind: What the files hold.
        sources: Name -> source.

    Raises:
        DataError: If a file cannot be read or lacks a column, or a source has no rows.
    """

    def __init__(self, kind: Kind, sources: Mapping[str, Source]) -> None:
        self.kind: Kind = kind
        self.parts: dict[str, list[Part]] = {}
        self.left: dict[str, bytearray] = {}
        self.truths: dict[str, dict[int, str]] = {source: {} for source in sources}
        self._sources = dict(sources)
        for source, settings in sources.items():
            paths = [Path(file) for file in settings.files]
            self.parts[source] = list(_parts(kind, source, paths))
            size = sum(part.size for part in self.parts[source])
            wanted = settings.data_source
            if wanted is None:
                self.left[source] = bytearray(b"\x01") * size
            else:
                found = chain.from_iterable(data_sources(path) for path in paths)
                self.left[source] = bytearray(name == wanted for name in found)
            if not any(self.left[source]):
                raise DataError(
                    f"source `{source}` has no row",
                    where=", ".join(map(str, paths)),
                    fix="`vtune data inspect` shows what a file holds; `data_source` selects rows",
                )

    def tasks(
        self, rules: Sequence[tuple[int, Selected]], corpus: tuple[int, Selected] | None
    ) -> Iterator[Task]:
        """One task per part with remaining rows, in the order of the sources."""
        for part in chain.from_iterable(self.parts.values()):
            task = self._task(part, rules, corpus)
            if any(task.left):
                yield task

    def items(self, source: str) -> Iterator[tuple[int, Item]]:
        """(position, row) of a source's remaining rows. Unreadable rows were dropped long before."""
        for part in self.parts[source]:
            task = self._task(part, (), None)
            if not any(task.left):
                continue
            for position, item in _items(task):
                if isinstance(item, DataError):
                    raise item
                yield position, item

    def item(self, source: str, position: int) -> Item | DataError:
        """One row, whether it remains or not."""
        part = self.place(source, position)
        sizes = group_sizes(part.path)
        for group in part.groups:
            end = part.first + sizes[group]
            if position < end:
                break
            part = replace(part, row=part.row + sizes[group], first=end)
        only = bytearray(sizes[group])
        only[position - part.first] = 1
        task = self._task(replace(part, groups=range(group, group + 1), size=sizes[group]), (), None)
        _, item = next(_items(replace(task, left=bytes(only))))
        return item

    def place(self, source: str, position: int) -> Part:
        """The part that contains a position."""
        parts = self.parts[source]
        return parts[bisect_right(parts, position, key=lambda part: part.first) - 1]

    def stands(self, source: str, position: int) -> tuple[str, int]:
        """The file of a position, and its row in that file."""
        part = self.place(source, position)
        return str(part.path), part.row + position - part.first

    def positions(self, source: str) -> list[int]:
        """Positions of a source's remaining rows."""
        return [position for position, left in enumerate(self.left[source]) if left]

    def _task(
        self, part: Part, rules: Sequence[tuple[int, Selected]], corpus: tuple[int, Selected] | None
    ) -> Task:
        end = part.first + part.size
        truths = {p: truth for p, truth in self.truths[part.source].items() if part.first <= p < end}
        left = bytes(self.left[part.source][part.first : end])
        return Task(self.kind, part, self._sources[part.source], left, truths, rules, corpus)


def look(task: Task) -> Found:
    """Apply rules to a task's rows and take keys of those that pass. Main thread only (math-verify).

    A rule that cannot read a row drops it, giving what it could not read as the reason.
    """
    found = Found(task.part)
    for position, item in _items(task):
        if isinstance(item, DataError):
            found.dropped.append(Dropped(position, VALID, None, _one_line(item)))
            continue
        if _passes(task, position, item, found) and task.kind == "samples":
            found.identities.append((position, identity(item.record)))
    return found


def _passes(task: Task, position: int, item: Item, found: Found) -> bool:
    """Send one row through the rules up to the first that drops it, and take its key."""
    name = identity(item.record)
    for column, spec in task.rules:
        if not concerns(spec, item):
            continue
        found.concerned[column] += 1
        rule = FILTERS[spec.filter].rule
        assert rule is not None
        try:
            reason = _asked(spec, rule, task, position, item)
        except DataError as error:
            reason = _one_line(error)
        if reason is not None:
            if not isinstance(reason, str) or not reason.strip():
                raise no_reason(spec.filter, reason, _place(task, position, name))
            found.dropped.append(Dropped(position, column, name, reason))
            return False
    if task.corpus is None:
        return True
    column, spec = task.corpus
    corpus = FILTERS[spec.filter].corpus
    assert corpus is not None
    if concerns(spec, item):
        found.concerned[column] += 1
        try:
            found.keys.append((position, name, _asked(spec, corpus.key, task, position, item)))
        except DataError as error:
            found.dropped.append(Dropped(position, column, name, _one_line(error)))
            return False
    return True


def _asked(
    spec: Selected, function: Callable[[Any, Item], Any], task: Task, position: int, item: Item
) -> Any:
    """What a filter's function returns for a row.

    Raises:
        BrokenPart: If a user's own function fails; names the row.
    """
    try:
        return function(spec, item)
    except VtuneError:
        raise
    except (Exception, SystemExit) as error:
        # A filter of ours may call a user's verifier: then the traceback decides whose mistake it is.
        own = spec.filter not in OURS[FILTERS.kind]
        if (failed := broken(error, (FILTERS.kind, spec.filter) if own else None)) is None:
            raise
        failed.what = f"{failed.what} ({_place(task, position, identity(item.record))})"
        raise failed from error


def _place(task: Task, position: int, name: str) -> str:
    """A row as errors name it."""
    return f"sample {name!r}, row {task.part.row + position - task.part.first} of {task.part.path}"


def _items(task: Task) -> Iterator[tuple[int, Item | DataError]]:
    part = task.part
    for offset, row in enumerate(scan_groups(part.path, part.groups)):
        if task.left[offset]:
            position = part.first + offset
            try:
                record = _record(task, row, part.row + offset)
            except DataError as error:
                yield position, error
                continue
            truth = task.truths.get(position)
            if truth is not None and isinstance(record, Sample):
                record = replace(record, ground_truth=truth, answer=truth)
            yield position, Item(record, part.source, part.path.parent)


def _record(task: Task, row: Row, number: int) -> Record:
    """The row as a record of its source."""
    name, source = task.part.source, task.source
    if task.kind == "traces":
        trace = trajectory_from_row(row)
        _check_pictures(trace, task.part.path.parent)
        return replace(trace, source=name) if source.rename else trace
    sample = sample_from_row(row, place=f"{task.part.name}/{number}")
    check_unanswered(sample)
    _check_pictures(sample, task.part.path.parent)
    if source.tools is not None:
        sample = offering(sample, source.tools)
    if sample.source == name or not source.rename:
        check_source(sample.source)
        return sample
    return replace(sample, source=name, extra={**sample.extra, "data_source": sample.source})


def _check_pictures(record: Record, base: Path) -> None:
    """Check that pictures given by path exist; many filters do not look at pictures.

    Raises:
        DataError: Names the first that is missing.
    """
    for picture in record.images:
        if picture.data is None and picture.path is not None and not _is_file(base / picture.path):
            raise DataError(
                f"no picture at {base / picture.path}",
                fix="paths are relative to the folder of the Parquet file",
            )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # name too long, e.g. a picture given in base64
        return False


def names_of(source: str, paths: Sequence[Path]) -> dict[Path, str]:
    """File -> the source plus as much of its path as makes it unique: shards may have the same names."""
    left, depth, found = {*paths}, 1, dict[Path, str]()
    while left:
        ends = {path: path.with_suffix("").parts[-depth:] for path in left}
        times = Counter(ends.values())
        for path, end in ends.items():
            if times[end] == 1 or depth >= len(path.parts):
                found[path] = "/".join(end)
        left -= found.keys()
        depth += 1
    return {path: name if name == source else f"{source}/{name}" for path, name in found.items()}


def _parts(kind: Kind, source: str, paths: Sequence[Path]) -> Iterator[Part]:
    needs = SAMPLE_NEEDS
    if kind == "traces":
        needs = tuple(name for name in TRAJECTORY_COLUMNS.names if name not in LATE_COLUMNS)
    names = names_of(source, paths)
    first = 0
    for path in paths:
        there = columns(path)
        missing = [name for name in needs if name not in there]
        if missing:
            raise DataError(
                f"the file has no column `{missing[0]}`",
                where=str(path),
                fix=f"the recipe says that it holds {kind}; its columns are {', '.join(there)}",
            )
        sizes = group_sizes(path)
        row = begin = 0
        for end in range(1, len(sizes) + 1):
            size = sum(sizes[begin:end])
            if end == len(sizes) or size + sizes[end] > PART_ROWS:
                yield Part(source, names[path], path, range(begin, end), row, first, size)
                begin, row, first = end, row + size, first + size


T = TypeVar("T")


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Items in lists of `size`."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


def _one_line(error: DataError) -> str:
    place = f" ({error.where})" if error.where.startswith("column") else ""
    return " ".join(f"{error.what}{place}".split())

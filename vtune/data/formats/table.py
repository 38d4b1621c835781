"""The published layouts of datasets, by name."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import pyarrow as pa

from vtune.data.formats.building import Found, Options
from vtune.data.formats.specimens import Specimen
from vtune.errors import DataError, RecipeError, nearest
from vtune.parts import OURS
from vtune.registry import Parts, or_yours
from vtune.schema.fields import Row
from vtune.schema.sample import Sample

T = TypeVar("T")
Replies = Sequence[tuple[Sample, str]]
"""Questions with the reply to each; empty if there was none."""


@dataclass(frozen=True, slots=True)
class OfficialScorer:
    """The files of a benchmark's official scoring script, if scoring takes more than a few lines."""

    write: Callable[[Replies], Any]
    """Builds the JSON that the script reads."""
    read: Callable[[Any], Mapping[str, float | None]]
    """Script output -> {question id in it: score, None if excluded from the script's means}. Raises KeyError,
    TypeError or ValueError for anything else."""
    name: Callable[[Sample], str]
    """The question's id in the script's files."""
    replies: Callable[[Any], Mapping[str, Any]]
    """Script output -> {question id in it: the reply that it scored}."""


def by_id(rows: Iterable[tuple[str, T]], what: str) -> dict[str, T]:
    """Question id -> its value, for `OfficialScorer.read` and `replies`; a row may appear twice.

    Args:
        rows: (id, value) of each row.
        what: What the values are, for the message.

    Raises:
        DataError: If two rows of one question differ: it is unclear which is right.
    """
    found: dict[str, T] = {}
    for name, value in rows:
        held = found.setdefault(name, value)
        if held != value and (held == held or value == value):  # NaN is refused as a score, not as a second
            raise DataError(
                f"question {name!r:.60} has two {what}: {held!r:.60} and {value!r:.60}",
                fix="run the scorer again, on one file of `vtune scores export`",
            )
    return found


@dataclass(frozen=True, slots=True)
class Glance:
    """What a file or folder shows at a glance; missing parts are empty."""

    path: Path = Path()
    row: Row = field(default_factory=dict)
    """The first row of Parquet, JSON lines, or a JSON array."""
    head: str = ""
    """The first characters of a JSON object."""
    header: frozenset[str] = frozenset()
    """Columns of a TSV file."""

    @property
    def judge(self) -> Mapping[str, Any] | None:
        """The row's `reward_model`, as in verl's layout and its derivatives; None without it."""
        judge = self.row.get("reward_model")
        return judge if isinstance(judge, Mapping) else None


Look = Callable[[Glance], bool]
"""Whether a file or folder is certainly of a layout, judging by what it shows."""


def looks_like_none(glance: Glance) -> bool:
    """The look of a layout without a reliable sign: matches nothing."""
    return False


@dataclass(frozen=True, slots=True)
class Writer:
    """How files of a format are written, with pictures embedded; importing them restores everything."""

    to_row: Callable[[Any, int], Row]
    """(sample or trace, as the format makes, with picture bytes; row number) -> row.

    Raises DataError for one that the format cannot hold; it is left out and listed."""
    columns: pa.Schema | None = None
    """Schema of a Parquet file; None: JSON lines."""


@dataclass(frozen=True, slots=True)
class Format:
    """A published layout."""

    read: Callable[[Path, Options], Iterator[Found]]
    """(path, options of the caller) -> one entry per row."""
    reads: str
    """What the path is, briefly."""
    makes: Literal["samples", "traces"] = "samples"
    takes: tuple[str, ...] = ("images", "verifier", "tools")
    """Options that have an effect."""
    offers_tools: bool = False
    """Its rows name the tools that the model may call; a suite may leave that to its agent."""
    own_questions: bool = False
    """Its questions are worded here, without instructions; an import adds how to answer them."""
    leaves_out: bool = False
    """Its reader skips rows that no model here can be asked, so fewer are read than are published."""
    aliases: tuple[str, ...] = ()
    """Other names for it."""
    looks: Look = looks_like_none
    """Whether a file or folder is certainly of this format, so that it is not imported as another."""
    shares: Callable[[Options], tuple[Look, ...]] = lambda options: ()
    """Options of the caller -> the `looks` of other formats that its files may match as well."""
    broad: bool = False
    """Others are special cases of it: a file that also looks like one of those belongs to that one."""
    specimen: Callable[[Path], Specimen] | None = None
    """Writes a few rows of it into a folder, for testing."""
    writes: Writer | None = None
    """How `vtune data export` writes it; None if it is only read."""
    scan: Callable[[Path], Iterator[Sample | DataError]] | None = None
    """How a suite reads it, if not the way an import does."""
    official: OfficialScorer | None = None
    """The script that scores its questions, for `vtune scores`; None if vtune scores them."""


def _about(layout: Format) -> str:
    return layout.reads if layout.writes is None else f"{layout.reads}; also written"


FORMATS: Parts[Format] = Parts(
    "format",
    _about,
    Format,
    calls=("read(path, options) -> Iterator[Found]", "specimen(folder) -> Specimen"),
)
"""Name -> layout."""

KINDS_OF_FILES = frozenset({"csv", "tsv", "table", "json", "jsonl", "ndjson", "parquet"})
"""Kinds of table files that users may have."""
SPREADSHEETS = frozenset({"excel", "xls", "xlsx", "ods"})
"""Kinds that have to be saved as CSV first."""


def plain_name(name: str) -> str:
    """The name in the table for any name or alias of a format.

    Raises:
        RecipeError: If there is none.
    """
    aliases = {} if name in FORMATS else _aliases()
    if name not in FORMATS and name not in aliases:
        kind = name.lower().removeprefix(".")
        if kind in KINDS_OF_FILES | SPREADSHEETS:
            raise _kind_of_file(name, saved="save it as CSV, and " if kind in SPREADSHEETS else "")
        raise RecipeError(f"unknown format {name!r}", fix=FORMATS.meant(name, *aliases))
    return aliases.get(name, name)


def _kind_of_file(name: str, saved: str) -> RecipeError:
    """The error for a kind of file given as a format: tables are read with a column map."""
    mapped = next(plain for plain, layout in FORMATS.items() if "columns" in layout.takes)
    return RecipeError(
        f"unknown format {name!r}: that is a kind of file, and a format says what its columns mean",
        fix=f"{saved}import a table of your own as `{mapped}`, with a map of its columns (--columns FILE): "
        "see cli/data.md",
    )


def _aliases() -> dict[str, str]:
    """Alias -> name in the table; built-in formats take precedence, and no alias replaces a name."""
    found: dict[str, str] = {}
    for plain, layout in FORMATS.items():
        for alias in layout.aliases:
            found.setdefault(alias, plain)
    return found


def format_of(name: str) -> Format:
    """The layout with a given name.

    Raises:
        RecipeError: If there is none.
    """
    return FORMATS[plain_name(name)]


def written() -> dict[str, Writer]:
    """The formats that `vtune data export` writes, by name, with their writers."""
    return {name: layout.writes for name, layout in FORMATS.items() if layout.writes is not None}


def writer_of(name: str) -> Writer:
    """The writer of the format with a given name.

    Raises:
        RecipeError: If there is no such format, or it cannot be written.
    """
    plain = name if name in FORMATS else _aliases().get(name)
    if plain is None:
        raise RecipeError(f"unknown format {name!r}", fix=or_yours(nearest(name, written())))
    writer = FORMATS[plain].writes
    if writer is None:
        ours = plain in OURS[FORMATS.kind]
        raise RecipeError(
            f"the format `{name}` can be imported but not exported",
            fix=or_yours(f"choose one of {', '.join(written())}") if ours else "give its Format `writes`",
        )
    return writer

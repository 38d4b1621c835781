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
"""Questions with the reply to each, empty if there was none."""


@dataclass(frozen=True, slots=True)
class OfficialScorer:
    """The files of the script with which a benchmark's authors score replies, if that takes more than a few
    lines.
    """

    write: Callable[[Replies], Any]
    """The JSON that it reads."""
    read: Callable[[Any], Mapping[str, float | None]]
    """What it writes -> question id there -> score, None for one that it excludes from its means. Otherwise
    raises KeyError, TypeError or ValueError."""
    name: Callable[[Sample], str]
    """The id of a question in its files."""
    replies: Callable[[Any], Mapping[str, Any]]
    """What it writes -> question id there -> the reply that it scored."""


def by_id(rows: Iterable[tuple[str, T]], what: str) -> dict[str, T]:
    """Id of a question -> its value, for `OfficialScorer.read` and `replies`; a row may stand there twice.

    Args:
        rows: (id, value) of each row.
        what: What the values are, for the message.

    Raises:
        DataError: If two rows of one question differ: nobody can say which of them is right.
    """
    found: dict[str, T] = {}
    for name, value in rows:
        if found.setdefault(name, value) != value:
            raise DataError(
                f"question {name!r:.60} has two {what}: {found[name]!r:.60} and {value!r:.60}",
                fix="run the scorer again, on one file of `vtune scores export`",
            )
    return found


@dataclass(frozen=True, slots=True)
class Glance:
    """What a file or folder shows at a glance; missing parts are empty."""

    path: Path = Path()
    row: Row = field(default_factory=dict)
    """The first row of Parquet, of JSON lines, or of an array in JSON."""
    head: str = ""
    """The first characters of an object in JSON."""
    header: frozenset[str] = frozenset()
    """Columns of a TSV."""

    @property
    def judge(self) -> Mapping[str, Any] | None:
        """`reward_model` of the row, as in verl's layout and all that are made of it; None without it."""
        judge = self.row.get("reward_model")
        return judge if isinstance(judge, Mapping) else None


Look = Callable[[Glance], bool]
"""Whether a file or folder is certainly of a layout, by what it shows."""


def looks_like_none(glance: Glance) -> bool:
    """The look of a layout without any sure sign: no file has it."""
    return False


@dataclass(frozen=True, slots=True)
class Writer:
    """How files of a format are written, with their pictures inside: importing them restores everything."""

    to_row: Callable[[Any, int], Row]
    """Sample or trace (what the format makes), its pictures with their bytes; number of the row -> row.

    Raises DataError for one that the format cannot hold: it is left out, and listed."""
    columns: pa.Schema | None = None
    """For a Parquet file; None: JSON lines."""


@dataclass(frozen=True, slots=True)
class Format:
    """A published layout."""

    read: Callable[[Path, Options], Iterator[Found]]
    """Path, options of the caller -> one entry per row."""
    reads: str
    """What the path is, in a few words."""
    makes: Literal["samples", "traces"] = "samples"
    takes: tuple[str, ...] = ("images", "verifier", "tools")
    """Options that have an effect."""
    offers_tools: bool = False
    """Its rows name the tools that the model may call: a suite of them may leave that to its agent."""
    own_questions: bool = False
    """Its questions are written here, without instructions: an import adds how they are to be answered."""
    leaves_out: bool = False
    """Its reader skips rows that no model here can be asked, so that fewer are read than are published."""
    aliases: tuple[str, ...] = ()
    """Other names of it."""
    looks: Look = looks_like_none
    """Whether a file or folder is certainly of this format: then it is not imported as another by mistake."""
    shares: Callable[[Options], tuple[Look, ...]] = lambda options: ()
    """What the caller says -> the `looks` of other formats that its files may have as well."""
    broad: bool = False
    """Others are special cases of it: a file that also looks like one of those belongs to it."""
    specimen: Callable[[Path], Specimen] | None = None
    """Writes a few rows of it into a folder, for testing."""
    writes: Writer | None = None
    """How `vtune data export` writes it; None if it is only read."""
    scan: Callable[[Path], Iterator[Sample | DataError]] | None = None
    """How a suite reads it, if not in the same way as an import."""
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
"""Names of kinds of tables that users may have."""
SPREADSHEETS = frozenset({"excel", "xls", "xlsx", "ods"})
"""Those of them that have to be saved as CSV first."""


def plain_name(name: str) -> str:
    """The name in the table for any name of a format.

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
    """The error for a kind of file in place of a format: tables are read by a map of their columns."""
    mapped = next(plain for plain, layout in FORMATS.items() if "columns" in layout.takes)
    return RecipeError(
        f"unknown format {name!r}: that is a kind of file, and a format says what its columns mean",
        fix=f"{saved}import a table of your own as `{mapped}`, with a map of its columns (--columns FILE): "
        "see cli/data.md",
    )


def _aliases() -> dict[str, str]:
    """Alias -> name in the table; ours first, and a name of ours stays ours."""
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
        RecipeError: If there is no such format, or it is only read.
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

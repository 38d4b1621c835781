"""The table of filters: rules for a single row, filters over all rows, and filters that ask a model.

A rule looks at one row. A corpus filter first takes a key of every row, then decides over all of them; keys
are small, so that millions fit in memory. Filters that ask a model or a person are run by `vtune.runs`.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from vtune.curate.item import Item, Selected
from vtune.registry import Parts, first_line
from vtune.sections import Named
from vtune.uses import ill_made

Rule = Callable[[Any, Item], str | None]
"""(section of the recipe, row) -> the reason to drop it, or None. A DataError also drops the row."""

Records = Literal["samples", "traces"]
"""What the files of a data recipe hold."""


@dataclass(frozen=True, slots=True)
class Like:
    """A reason to drop a row that refers to another row; the caller, who knows its place, fills that in."""

    why: str
    """Text that precedes the other row: `the same question as`."""
    row: int
    """Index of the other row."""

    def named(self, identity: str, place: str) -> str:
        """The full reason, for people."""
        return f"{self.why} {identity} ({place})"


def no_reason(name: str, given: object, place: str) -> Exception:
    """The error for a filter that returned neither a text, the reason to drop a row, nor None to keep it.

    For example, `return found and "why"` gives False for rows to keep.

    Args:
        name: The filter.
        given: What it returned.
        place: The row, as errors name it.
    """
    what = f"it returns {given!r:.60} as the reason to drop a row ({place})"
    return ill_made((FILTERS.kind, name), what, "return the reason as a text, or None to keep the row")


@dataclass(frozen=True, slots=True)
class Corpus:
    """A filter over all rows."""

    key: Callable[[Any, Item], Any]
    """(section, row) -> what the decision needs to know about the row."""
    decide: Callable[[Any, Sequence[tuple[str, Any]], random.Random], Mapping[int, str | Like]]
    """(section, (source, key) of each row in order, random generator) -> {index: reason to drop it}. There
    may be no rows. A reason may refer to another of these rows (`Like`)."""


@dataclass(frozen=True, slots=True)
class FilterPart:
    """A filter of data recipes."""

    section: type[Selected]
    """Its section; the first line of its docstring says what the filter does."""
    how: Rule | Corpus | None
    """None: it asks a model or a person."""
    looks_at: tuple[Records, ...] = ("samples",)
    keeps: Mapping[str, Any] = field(default_factory=dict)
    """A row that passes with the settings of `example`, as arguments of `Sample` (or of `Trajectory`, if it
    only looks at traces) over a plain row. A filter for both is tested on both if all its rows have arguments
    that both accept."""
    drops: Mapping[str, Any] = field(default_factory=dict)
    """A row that is dropped."""
    beside: Sequence[Mapping[str, Any]] = ()
    """Rows between the two, for a filter over all rows. At least one of the rows like `drops` must go, as
    chance may decide which; the fate of the others does not matter."""
    example: Mapping[str, Any] | Callable[[Path, str], Mapping[str, Any]] = field(default_factory=dict)
    """Settings for its test; or a function that makes them from an empty folder, for files that they name,
    and the URL of an endpoint at which a model replies as in `says`."""
    says: Callable[[str], str] | None = None
    """The model's reply to a request with this text; None: it asks no model."""

    @property
    def rule(self) -> Rule | None:
        """The rule for one row; None if it works differently."""
        return None if isinstance(self.how, Corpus) else self.how

    @property
    def corpus(self) -> Corpus | None:
        """The filter over all rows; None if it works differently."""
        return self.how if isinstance(self.how, Corpus) else None


FILTERS: Parts[FilterPart] = Parts(
    "filter", lambda one: first_line(one.section), FilterPart, calls=("how(section, item) -> str | None",)
)
"""Name in a data recipe -> filter."""

Filter = Annotated[Selected, Named("filter", lambda name: FILTERS[name].section, FILTERS)]
"""A filter's section; its key `filter` gives the name."""

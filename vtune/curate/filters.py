"""The table of filters: rules for a single row, filters over all rows, and filters that ask a model.

A rule looks at one row. A corpus filter first takes a key of every row, then decides over all of them; keys
are small, so that millions fit in memory. What asks a model or a person is done by `vtune.runs`.
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
"""(section of the recipe, row) -> the reason to drop it, or None. A DataError drops the row, too."""

Records = Literal["samples", "traces"]
"""What the files of a data recipe hold."""


@dataclass(frozen=True, slots=True)
class Like:
    """A reason to drop a row that names another one; whoever knows where that stands fills it in."""

    why: str
    """Ends before the other row: `the same question as`."""
    row: int
    """Index of the other one."""

    def named(self, identity: str, place: str) -> str:
        """The reason as people read it."""
        return f"{self.why} {identity} ({place})"


def no_reason(name: str, given: object) -> Exception:
    """The error for a filter that gave something else than a reason to drop a row, or None to keep it.

    `return found and "why"` gives False for the rows to keep.
    """
    what = f"it gives {given!r:.60} as the reason to drop a row"
    return ill_made((FILTERS.kind, name), what, "return the reason as a text, or None to keep the row")


@dataclass(frozen=True, slots=True)
class Corpus:
    """A filter over all rows."""

    key: Callable[[Any, Item], Any]
    """(section, row) -> what the decision needs to know of it."""
    decide: Callable[[Any, Sequence[tuple[str, Any]], random.Random], Mapping[int, str | Like]]
    """(section, (source, key) of each row in order, chance) -> index -> the reason to drop it. There may be
    no row. A reason may name another of these rows (`Like`)."""


@dataclass(frozen=True, slots=True)
class FilterPart:
    """A filter of data recipes."""

    section: type[Selected]
    """Its section, in whose first line it says what it does."""
    how: Rule | Corpus | None
    """None: it asks a model, or a person."""
    looks_at: tuple[Records, ...] = ("samples",)
    keeps: Mapping[str, Any] = field(default_factory=dict)
    """A row that passes with the settings of `example`, as arguments of `Sample` over a plain one; of
    `Trajectory`, where it looks at traces alone. One that looks at both is tried on both, where all of its
    rows have arguments that both know."""
    drops: Mapping[str, Any] = field(default_factory=dict)
    """One that does not."""
    beside: Sequence[Mapping[str, Any]] = ()
    """Rows between the two, for a filter over all rows. Of those that are like `drops` one at least goes, for
    chance may decide which; what becomes of others does not matter."""
    example: Mapping[str, Any] | Callable[[Path, str], Mapping[str, Any]] = field(default_factory=dict)
    """Settings with which it is tried; or what makes them of an empty folder, for files that they name, and
    of the URL of an endpoint, at which a model says what `says` gives."""
    says: Callable[[str], str] | None = None
    """What a model says to a request with this text; None: it asks none."""

    @property
    def rule(self) -> Rule | None:
        """How it looks at one row; None where it does otherwise."""
        return None if isinstance(self.how, Corpus) else self.how

    @property
    def corpus(self) -> Corpus | None:
        """How it looks at all rows; None where it does otherwise."""
        return self.how if isinstance(self.how, Corpus) else None


FILTERS: Parts[FilterPart] = Parts(
    "filter", lambda one: first_line(one.section), FilterPart, calls=("how(section, item) -> str | None",)
)
"""Name in a data recipe -> filter."""

Filter = Annotated[Selected, Named("filter", lambda name: FILTERS[name].section, FILTERS)]
"""A filter's section; `filter` says which."""

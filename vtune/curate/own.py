"""Rules of a user's own: a file under `uses` adds them to `FILTERS`, a data recipe names them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from vtune.config import Strict
from vtune.curate.item import Item, Selected
from vtune.parts import Parts, first_line


@dataclass(frozen=True, slots=True)
class FilterPart:
    """A rule over one row."""

    rule: Callable[[Any, Item], str | None]
    """(settings, row) -> the reason to drop it, or None. A DataError drops the row, too."""
    keeps: Mapping[str, Any]
    """A row that passes with the settings of `example`, as arguments of `Sample` over a plain one."""
    drops: Mapping[str, Any]
    """One that does not."""
    recipe: type[Strict] | None = None
    """What its settings are; None: it has none."""
    example: Mapping[str, Any] = field(default_factory=dict)
    """Settings with which it is tried."""


FILTERS: Parts[FilterPart] = Parts("filter", lambda one: first_line(one.rule))
"""Name in a data recipe -> rule."""


class Own(Selected):
    """Drops what a rule of the user's own drops."""

    filter: Literal["own"]
    name: Annotated[str, AfterValidator(FILTERS.known)]
    settings: Mapping[str, Any] = Field(default_factory=dict)
    """Of the rule."""

    @model_validator(mode="after")
    def _settings_fit(self) -> Self:
        settings_of(FILTERS[self.name], self.settings)
        return self


def settings_of(part: FilterPart, values: Mapping[str, Any]) -> Any:
    """The settings of a rule as it reads them.

    Raises:
        ValueError: If they are not its own.
    """
    if part.recipe is not None:
        return part.recipe.model_validate(dict(values))
    if values:
        raise ValueError("this rule has no settings")
    return {}


def dropped(spec: Own, item: Item) -> str | None:
    """The reason of the rule to drop a row."""
    part = FILTERS[spec.name]
    return part.rule(settings_of(part, spec.settings), item)

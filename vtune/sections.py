"""The base of all recipe sections: strict, and open to a user's own parts."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError, PydanticKnownError
from pydantic_core.core_schema import no_info_plain_validator_function

LARGEST = 2**63 - 1
"""The largest whole number in a recipe: what tensors, Parquet and random generators can hold."""


class Strict(BaseModel):
    """Base of every recipe section: no unknown keys, immutable after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    decides: ClassVar[tuple[str, ...]] = ()
    """Top-level keys that decide what `completed` fills in; overrides of them are applied before it."""

    @classmethod
    def completed(cls, values: dict[str, Any], chosen: Collection[str]) -> dict[str, Any]:
        """The values of a file, completed from other files that it names; most files need no completion.

        Args:
            values: Values of the file, not validated yet.
            chosen: Those of `decides` that an override has set.

        Raises:
            RecipeError: If another file is missing or invalid.
        """
        return values

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_numbers(cls, values: Any) -> Any:
        # Python, and therefore pydantic, accepts `true` as 1, and integers of any size.
        given = values if isinstance(values, dict) else {}
        for name, value in given.items():
            if isinstance(value, int) and abs(value) > LARGEST:
                raise ValueError(f"{name} is larger than {LARGEST}, the largest number that means anything")
        for name, field in cls.model_fields.items():
            if not isinstance(given.get(name), bool):
                continue
            kinds = (field.annotation, *get_args(field.annotation))
            number = any(kind in (int, float) or type(kind) is int for kind in kinds)
            if number and bool not in kinds:
                raise ValueError(f"{name} is {str(given[name]).lower()}, which is not a value for it")
        return values


class Open(Strict):
    """A section that also has one key per part of some kind: a user's own come from `uses`."""

    model_config = ConfigDict(extra="allow")

    @classmethod
    def sections(cls) -> Mapping[str, type[Strict]]:
        """Key -> its section, for everything allowed besides the fields."""
        raise NotImplementedError

    @model_validator(mode="before")
    @classmethod
    def _read_sections(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        own = [name for name in values if name not in cls.model_fields]
        known = cls.sections() if own else {}  # this loads parts, which may need this section
        read, problems = dict(values), list[InitErrorDetails]()
        for name in own:
            try:
                if name not in known:
                    problems.append({"type": "extra_forbidden", "loc": (name,), "input": values[name]})
                elif values[name] is not None:  # null: not used in this run
                    read[name] = known[name].model_validate(values[name])
            except ValidationError as error:
                problems += [_inside(name, problem) for problem in error.errors()]
        if problems:
            raise ValidationError.from_exception_data(cls.__name__, problems)
        return read

    @property
    def given(self) -> dict[str, Any]:
        """Key -> its section, for everything given besides the fields."""
        extra = self.__pydantic_extra__ or {}
        return {name: section for name, section in extra.items() if section is not None}


def _inside(name: str, problem: ErrorDetails) -> InitErrorDetails:
    """A problem in a section, as a problem of the section that contains it."""
    kind: str | PydanticCustomError = problem["type"]
    if kind in ("value_error", "assertion_error"):
        kind = PydanticCustomError("value_error", "{why}", {"why": problem["msg"]})
    loc = (name, *problem["loc"])
    return {"type": kind, "loc": loc, "input": problem["input"], "ctx": problem.get("ctx", {})}


@dataclass(frozen=True)
class Named:
    """Annotation of a field: its section is that of the part which it names itself.

    Args:
        key: The key that contains the part's name.
        section: Name -> section.
        known: All names.
    """

    key: str
    section: Callable[[str], type[Strict]]
    known: Mapping[str, Any]

    def of(self, values: Any) -> type[Strict] | None:
        """The section named by some values; None if they name none."""
        name = values.get(self.key) if isinstance(values, dict) else None
        return self.section(name) if isinstance(name, str) and name in self.known else None

    def read(self, values: Any) -> Strict:
        """Values as the section that they name."""
        if isinstance(values, Strict):
            return values
        section = self.of(values)
        if section is not None:
            return section.model_validate(values)
        if not isinstance(values, dict):
            raise PydanticKnownError("dict_type")
        facts = {"discriminator": repr(self.key)}
        if self.key not in values:
            raise PydanticKnownError("union_tag_not_found", facts)
        names = ", ".join(map(repr, self.known))
        raise PydanticKnownError(
            "union_tag_invalid", {**facts, "tag": str(values[self.key]), "expected_tags": names}
        )

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return no_info_plain_validator_function(self.read)

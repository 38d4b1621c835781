"""Reads and checks the values of a row; an error names the full column and the remedy."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_args

from vtune.errors import DataError
from vtune.schema.box import Box
from vtune.schema.message import Picture

Row = dict[str, Any]
"""Column -> value, as in Arrow."""

Kinds = frozenset[type[Any]]

_WHOLE: Kinds = frozenset({int})
_WHOLE_OR_NULL: Kinds = frozenset({int, NoneType})
_FLOAT_OR_NULL: Kinds = frozenset({float, NoneType})
_FLAG: Kinds = frozenset({bool})


@dataclass(frozen=True, slots=True)
class Fields:
    """A struct from disk. Every reader raises DataError for a value of another type.

    Null lists read as empty; a null or absent scalar reads as its default.
    """

    values: Mapping[str, Any]
    path: str = ""
    """Prefix of the column's name, e.g. `reward_model.`."""

    def name(self, key: str) -> str:
        """The full name of a member, e.g. `reward_model.verifier`."""
        return f"{self.path}{key}"

    def text(self, key: str, default: str | None = None) -> str:
        """A text; required if there is no default."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise mistyped(self.name(key), value, "text")
        return value

    def one_of(self, key: str, options: Any) -> Any:
        """A text that is one of the values of a `Literal` type."""
        value = self.text(key)
        if value not in get_args(options):
            known = ", ".join(get_args(options))
            raise wrong(self.name(key), f"unknown value {value!r}", f"write one of {known}")
        return value

    def one_of_or_null(self, key: str, options: Any) -> Any:
        """The same; None if it is null or absent."""
        return None if self.values.get(key) is None else self.one_of(key, options)

    def number(self, key: str, default: float) -> float:
        """A number."""
        value = self.number_or_null(key)
        return default if value is None else value

    def number_or_null(self, key: str) -> float | None:
        """A number; None if it is null or absent."""
        return _number_or_null(self.name(key), self.values.get(key))

    def integer(self, key: str, default: int) -> int:
        """A whole number."""
        value = self.integer_or_null(key)
        return default if value is None else value

    def integer_or_null(self, key: str) -> int | None:
        """A whole number; None if it is null or absent."""
        value = self.values.get(key)
        return None if value is None else _integer(self.name(key), value)

    def items(self, key: str) -> list[Any]:
        """A list of anything."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise mistyped(self.name(key), value, "a list")
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        items = self.items(key)
        if _only(items, _WHOLE):
            return tuple(items)
        name = self.name(key)
        return tuple(_integer(name, value) for value in items)

    def integers_or_null(self, key: str) -> tuple[int | None, ...]:
        """A list of whole numbers or null."""
        items = self.items(key)
        if _only(items, _WHOLE_OR_NULL):
            return tuple(items)
        name = self.name(key)
        return tuple(None if value is None else _integer(name, value) for value in items)

    def numbers_or_null(self, key: str) -> tuple[float | None, ...]:
        """A list of numbers or null."""
        items = self.items(key)
        if _only(items, _FLOAT_OR_NULL):
            return tuple(items)
        name = self.name(key)
        return tuple(_number_or_null(name, value) for value in items)

    def numbers_by_name(self, key: str) -> dict[str, float | None]:
        """A map from names to numbers or null, as Arrow gives it: a list of pairs."""
        found: dict[str, float | None] = {}
        for entry in self.items(key):
            if not isinstance(entry, tuple | list) or len(entry) != 2 or not isinstance(entry[0], str):
                raise mistyped(self.name(key), entry, "a name with its number")
            found[entry[0]] = _number_or_null(self.name(key), entry[1])
        return found

    def flag(self, key: str) -> bool:
        """True or false; false if it is absent."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise mistyped(self.name(key), value, "true or false")
        return bool(value)

    def flags(self, key: str) -> tuple[bool, ...]:
        """A list of true and false."""
        items = self.items(key)
        if not _only(items, _FLAG):
            wrong_one = next(value for value in items if not isinstance(value, bool))
            raise mistyped(self.name(key), wrong_one, "true or false")
        return tuple(items)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        for value in self.items(key):
            if not isinstance(value, str):
                raise mistyped(self.name(key), value, "text")
        return tuple(self.items(key))

    def struct(self, key: str) -> "Fields":
        """A struct inside this one."""
        return _struct(self.name(key), self.values.get(key))

    def structs(self, key: str) -> list["Fields"]:
        """A list of structs."""
        return [_struct(self.name(key), value) for value in self.items(key)]

    def box(self, key: str) -> Box:
        """Four finite numbers: xyxy in pixels."""
        entries = self.numbers_or_null(key)
        sides = [side for side in entries if side is not None and math.isfinite(side)]
        if len(entries) != 4 or len(sides) != 4:
            raise mistyped(self.name(key), self.values.get(key), "a box [x0, y0, x1, y1] of finite numbers")
        return sides[0], sides[1], sides[2], sides[3]


def wrong(column: str, what: str, fix: str) -> DataError:
    """An error about one column; file and row are added by the caller that knows them."""
    return DataError(what, where=f"column `{column}`", fix=fix)


def mistyped(column: str, value: Any, wanted: str) -> DataError:
    """The error for a value of the wrong type."""
    held = "nothing (null)" if value is None else f"{type(value).__name__} {value!r:.60}"
    return wrong(column, f"found {held} where {wanted} is needed", f"write {wanted} into `{column}`")


def check_unicode(column: str, value: Any) -> None:
    """Check that all texts in a value can be stored: JSON may contain half a surrogate pair, UTF-8 may not.

    Args:
        column: Its name, for the error; "" for a row as a whole.
        value: The value to store.

    Raises:
        DataError: Names the column.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            check_unicode(f"{column}.{key}" if column else str(key), item)
    elif isinstance(value, list):
        for item in value:
            check_unicode(column, item)
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            half = f"\\u{ord(value[error.start]):04x}"
            raise wrong(
                column, f"a text has {half}, half of a character", "correct or drop the row"
            ) from None


def picture_to_row(picture: Picture) -> Row:
    """The struct of a picture, without its origin."""
    if picture.data is None and picture.path is None:
        raise _without_content()
    return {"bytes": picture.data, "path": picture.path}


def shown_to_row(picture: Picture) -> Row:
    """The struct of a trajectory's picture, with its origin and the size at which the policy saw it."""
    seen = None if picture.seen is None else list(picture.seen)
    return picture_to_row(picture) | {"origin": picture.origin, "seen": seen}


def pictures_from_row(value: Any) -> tuple[Picture, ...]:
    """Pictures from list<struct<bytes, path, origin>>, or (foreign) from paths, bytes or a single picture."""
    if value is None:
        return ()
    return tuple(_picture(item) for item in (value if isinstance(value, list) else [value]))


def _picture(item: Any) -> Picture:
    if isinstance(item, str):
        return Picture(path=item)
    if isinstance(item, bytes):
        return Picture(data=item)
    fields = _struct("images", item)
    data, path = item.get("bytes"), item.get("path")
    path = None if path == "" else path
    if data == b"" and path is not None:
        data = None  # some writers have no nulls: if there is a path, use it
    if data is None and path is None:
        raise _without_content()
    if data is not None and not isinstance(data, bytes):
        raise mistyped("images.bytes", data, "an encoded image")
    seen = fields.integers("seen")
    if len(seen) not in (0, 2) or any(side < 1 for side in seen):
        raise mistyped("images.seen", list(seen), "a width and a height")
    size = (seen[0], seen[1]) if seen else None
    return Picture(data, None if path is None else fields.text("path"), fields.text("origin", "input"), size)


def _without_content() -> DataError:
    return wrong("images", "a picture has neither bytes nor a path", "give one of them")


def _struct(name: str, value: Any) -> Fields:
    if not isinstance(value, dict):
        raise mistyped(name, value, "a struct")
    return Fields(value, f"{name}.")


def _only(items: list[Any], kinds: Kinds) -> bool:
    """Whether all values have exactly these types.

    Types are collected without executing Python code per value: a conversation has thousands of tokens,
    in several lists.
    """
    return kinds.issuperset(map(type, items))


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise mistyped(name, value, "a whole number")
    return value


def _number_or_null(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise mistyped(name, value, "a number")
    try:
        return float(value)
    except OverflowError:  # integer too large
        raise wrong(
            name, "found a number that is too large for a float", f"write a smaller one into `{name}`"
        ) from None

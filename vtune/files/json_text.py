"""The one parser for foreign JSON: bounded in depth and size, so it never overflows the stack."""

import json
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from vtune.errors import DataError
from vtune.files.reading import MAX_DOCUMENT, read_text
from vtune.files.terminal import brief

MAX_DEPTH = 64
"""Limit on nested lists and objects; ours: code that walks through a value later recurses once per level."""
MAX_PARTS = 1_000_000
"""Limit on the lists and objects in one value; ours: each takes 60 to 250 bytes, fifty times its text."""


class KeyTwice(ValueError):
    """An object has the same key twice, and only one of its values would be read."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise KeyTwice(f"the key `{brief(key)}` is given twice")
    return found


_ONCE = json.JSONDecoder(object_pairs_hook=_once)
"""Created once: `json.loads` would create one per call."""


def parse_row(text: str) -> Any:
    """The value of a JSON text that is a row of data; no object may contain a key twice.

    Raises:
        ValueError: As in `parse_json`, and for a duplicate key (`KeyTwice`).
    """
    return _parsed(text, MAX_PARTS, _ONCE.decode)


def parse_rows(text: str | bytes, *, parts: int) -> Any:
    """The value of a JSON text that is an array of rows of data.

    Args:
        text: As in `parse_json`.
        parts: As in `parse_json`.

    Returns:
        The array; a row in which an object has a key twice is replaced by the `KeyTwice` error.

    Raises:
        ValueError: As in `parse_json`; if the value is not an array, also for a duplicate key.
    """
    found: list[KeyTwice] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any] | KeyTwice:
        try:
            return _once(pairs)
        except KeyTwice as error:
            found.append(error)
            return error

    value = _parsed(text, parts, partial(json.loads, object_pairs_hook=once))
    if not found:
        return value
    if not isinstance(value, list):
        raise found[0]
    return [_twice_in(row) or row for row in value]


def _twice_in(value: Any) -> KeyTwice | None:
    """The error that takes the place of an object within a row, if any."""
    if isinstance(value, KeyTwice):
        return value
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((error for item in inside if (error := _twice_in(item)) is not None), None)


def parse_json(
    text: str | bytes, *, parts: int = MAX_PARTS, parse_constant: Callable[[str], Any] | None = None
) -> Any:
    """The value of a JSON text.

    Args:
        text: The text; bytes in UTF-8, 16 or 32.
        parts: Limit on the lists and objects that it may contain.
        parse_constant: As in `json.loads`: called for NaN and the infinities.

    Raises:
        ValueError: If it is not JSON, is nested more deeply than 64 levels, or has too many parts.
        TypeError: If it is not a text.
    """
    return _parsed(text, parts, partial(json.loads, parse_constant=parse_constant))


def _parsed(text: str | bytes, parts: int, load: Callable[[Any], Any]) -> Any:
    opened = _opened(text) if isinstance(text, str | bytes) else 0
    if opened > parts:
        raise ValueError(f"it has {opened} lists and objects, more than the limit of {parts}")
    try:
        value = load(text)
    except RecursionError:
        raise _too_deep() from None
    except (json.JSONDecodeError, KeyTwice):
        raise
    except ValueError as error:
        if "set_int_max_str_digits" not in str(error):
            raise
        # Python's message ends with advice for programmers.
        raise ValueError(f"a number has more than {sys.get_int_max_str_digits()} digits") from None
    if opened > MAX_DEPTH:
        check_depth(value)
    return value


def read_json(path: Path, *, parts: int = MAX_PARTS, fix: str) -> Any:
    """The value of a JSON file.

    Args:
        path: The file.
        parts: As in `parse_json`.
        fix: What to do if it cannot be read.

    Raises:
        DataError: If it cannot be read, or is not JSON.
    """
    try:
        return parse_json(read_text(path, limit=MAX_DOCUMENT), parts=parts)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", fix=fix) from None
    except ValueError as error:
        raise DataError(f"not JSON: {error}", where=str(path), fix=fix) from None


def read_record(path: Path, *keys: str, fix: str) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        DataError: If it cannot be read, is not JSON, or is not an object with these keys.
    """
    record = read_json(path, fix=fix)
    if not isinstance(record, dict):
        raise DataError(f"it holds {kind_of_value(record)}, not an object", where=str(path), fix=fix)
    for key in keys:
        if key not in record:
            raise DataError(f"it has no `{key}`", where=str(path), fix=fix)
    return record


def kind_of_value(value: Any) -> str:
    """The type of a JSON value, with its article."""
    if value is None:
        return "null"
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list"}
    return kinds.get(type(value), "an object")


def check_depth(value: Any) -> None:
    """Check that lists and mappings are not nested too deeply for code that walks through them.

    Raises:
        ValueError: If they are, or if one contains itself.
    """
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inside: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inside.extend(held for held in item.values() if isinstance(held, dict | list | tuple))
            elif isinstance(item, list | tuple):
                inside.extend(held for held in item if isinstance(held, dict | list | tuple))
        if not inside:
            return
        level = inside
    raise _too_deep()


def _opened(text: str | bytes) -> int:
    if isinstance(text, bytes):
        return text.count(b"[") + text.count(b"{")
    return text.count("[") + text.count("{")


def _too_deep() -> ValueError:
    return ValueError(f"it is nested more deeply than {MAX_DEPTH} levels")

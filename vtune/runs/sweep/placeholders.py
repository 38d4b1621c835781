"""Placeholders in braces in a sweep, and its axes: one variant becomes one per value."""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

SEED, PREPARED = "seed", "prepared"
"""`{seed}` is a run's seed; `{prepared}` the folder of what was prepared for that seed."""
OF_RUNS = (SEED, PREPARED)

_MARK = re.compile(r"\{(\w+)\}")


class Row(NamedTuple):
    """A row of the table: a variant, or an untrained model, at one value of every axis."""

    name: str
    of: str
    """Name in the sweep's file."""
    at: Mapping[str, Any]
    """Axis -> its value."""


def points(axes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All combinations of the axes' values; without axes, only the empty one."""
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def rows(names: Iterator[str] | Mapping[str, Any], axes: Mapping[str, Any]) -> list[Row]:
    """The rows for names at all values of all axes: `evidence` at p = 0.9 is `evidence-0.9`."""
    return [Row(row_name(name, at), name, at) for at in points(axes) for name in names]


def row_name(name: str, at: Mapping[str, Any]) -> str:
    """The name of a row."""
    return "-".join([name, *map(str, at.values())])


def differences(pairs: Any, axes: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Pairs of rows for pairs of names, both at the same values."""
    return [(row_name(first, at), row_name(second, at)) for at in points(axes) for first, second in pairs]


def filled(value: Any, known: Mapping[str, Any]) -> Any:
    """A YAML value with the placeholders in all its texts filled in.

    A text that is only `{name}` becomes the value itself, so a number stays a number. Braces around unknown
    names stay: prompts have some.
    """
    if isinstance(value, str):
        whole = _MARK.fullmatch(value)
        if whole and whole[1] in known:
            return known[whole[1]]
        return _MARK.sub(lambda found: str(known.get(found[1], found[0])), value)
    if isinstance(value, Mapping):
        return {filled(key, known): filled(item, known) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [filled(item, known) for item in value]
    return value


def marks(value: Any) -> set[str]:
    """Names in braces in a YAML value."""
    if isinstance(value, str):
        return set(_MARK.findall(value))
    if isinstance(value, Mapping):
        return set().union(*(marks(key) | marks(item) for key, item in value.items()))
    return set().union(*map(marks, value)) if isinstance(value, list | tuple) else set()

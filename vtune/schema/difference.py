"""Where two records differ: what a written format lost on the way."""

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

T = TypeVar("T", Sample, Trajectory)

_ABSENT = object()
LONGEST = 60
"""Limit on the characters of a value that are shown."""


def difference(was: T, now: T) -> str:
    """The first place in which two records differ, with both values, as text; empty if they are equal.

    Pictures are compared by their bytes, ignoring paths.
    """
    return _between("", _pathless(was), _pathless(now))


def _pathless(record: T) -> T:
    return replace(record, images=tuple(replace(picture, path=None) for picture in record.images))


def _between(place: str, was: Any, now: Any) -> str:
    if was == now:
        return ""
    found = next((said for inner in _within(place, was, now) if (said := _between(*inner))), "")
    if found:
        return found
    start = _parted(was, now) if isinstance(was, str) and isinstance(now, str) else 0
    return f"`{place}` is {_shown(was, start)} and comes back as {_shown(now, start)}"


def _parted(was: str, now: str) -> int:
    """Where to start quoting two texts so that their difference is visible: later in long ones."""
    shorter = min(len(was), len(now))
    alike = next((at for at in range(shorter) if was[at] != now[at]), shorter)
    return max(0, alike - LONGEST // 3) if alike > LONGEST // 2 else 0


def _within(place: str, was: Any, now: Any) -> list[tuple[str, Any, Any]]:
    """The parts of two values of the same structure, each with its place; empty if they have none."""
    if is_dataclass(was) and type(was) is type(now):
        names = [field.name for field in fields(was)]
        return [(f"{place}.{name}".lstrip("."), getattr(was, name), getattr(now, name)) for name in names]
    if isinstance(was, tuple | list) and isinstance(now, tuple | list) and len(was) == len(now):
        return [(f"{place}[{n}]", *pair) for n, pair in enumerate(zip(was, now, strict=True))]
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        keys = dict.fromkeys([*was, *now])
        return [(f"{place}.{key}", was.get(key, _ABSENT), now.get(key, _ABSENT)) for key in keys]
    return []


def _shown(value: Any, start: int = 0) -> str:
    if value is _ABSENT:
        return "nothing"
    if isinstance(value, bytes):
        return f"{len(value)} bytes ({hashlib.sha256(value).hexdigest()[:8]})"
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return f"a list of {len(value)}"
    text = repr(value[start:] if start else value)
    return f"{'…' if start else ''}{text:.{LONGEST}}{'…' if len(text) > LONGEST else ''}"

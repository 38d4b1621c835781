"""Which keys differ between two dumped recipes."""

import json
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

SHORT = 48
"""Limit on the characters of a value that is shown with its key (ours)."""


def differing_keys(a: Any, b: Any, prefix: str = "") -> list[str]:
    """Dotted keys in which two dumped recipes differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = list(a) + [key for key in b if key not in a]
        return [k for key in keys for k in differing_keys(a.get(key), b.get(key), f"{prefix}{key}.")]
    return [] if a == b else [prefix.rstrip(".")]


def value_of(dumped: Any, key: str) -> Any:
    """The value of a dotted key of a dumped recipe; None if it is absent."""
    return reduce(lambda at, part: at.get(part) if isinstance(at, dict) else None, key.split("."), dumped)


def both(keys: Iterable[str], there: Any, now: Any) -> dict[str, tuple[Any, Any]]:
    """The values of dotted keys in both of two dumped recipes."""
    return {key: (value_of(there, key), value_of(now, key)) for key in keys}


def with_values(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """Keys in which two dumped recipes differ, with both values if they are short.

    >>> with_values({"seed": (0, 1), "loss.algorithm": (None, "grpo")})
    'seed (was 0, now 1), loss.algorithm (was null, now "grpo")'
    """
    return ", ".join(_with_values(key, *values) for key, values in changed.items())


def _with_values(key: str, there: Any, now: Any) -> str:
    texts = [json.dumps(value, ensure_ascii=False, default=str) for value in (there, now)]
    if there == now or max(map(len, texts)) > SHORT:
        return key  # a key that contains a dot, or a long value
    return f"{key} (was {texts[0]}, now {texts[1]})"

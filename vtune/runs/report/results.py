"""Reads an evaluation's `results.json`, which others may have edited, and checks what readers rely on."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vtune.errors import DataError
from vtune.files.json_text import read_record
from vtune.report.values import is_estimate


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Bucket(_Part):
    calls: str
    share: dict[str, Any] | None
    accuracy: dict[str, Any] | None


class _Looks(_Part):
    buckets: list[_Bucket] = Field(default_factory=list)
    no_shares: str | None = None


class _Score(_Part):
    intervals: dict[str, Any] = Field(default_factory=dict)


class _Uses(_Part):
    uses: dict[str, str] = Field(default_factory=dict)


class _Suite(_Part):
    published: dict[str, Any] | None = None


class _Results(_Part):
    """The keys that are read; newer ones may be missing."""

    score: _Score
    sources: dict[str, _Score]
    faithfulness: _Looks
    suite: _Suite | None = None
    environment: _Uses | None = None
    judged_by: dict[str, int] | None = None
    power: dict[str, Any] | None = None
    repeated: dict[str, Any] | None = None


def read_results(file: Path, *keys: str, fix: str) -> dict[str, Any]:
    """The content of `results.json`, checked for the shapes that pages and tables rely on.

    Args:
        file: The file.
        keys: Keys that it must have.
        fix: What to do if it cannot be read.

    Raises:
        DataError: If it cannot be read, lacks a key, or a value has the wrong type; names its place.
    """
    results = read_record(file, *keys, fix=fix)
    try:
        _Results.model_validate(results)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"`{where}`: {first['msg'].lower()}", where=str(file), fix=fix) from None
    if wrong := _no_number(results, ""):
        raise DataError(f"`{wrong}` is not a number", where=str(file), fix=fix)
    return results


def _no_number(value: Any, place: str) -> str | None:
    """The place of the first invalid number: NaN, infinite, or an estimate's text."""
    if isinstance(value, Mapping):
        parts = ("value", "low", "high") if is_estimate(value) else ()
        for name in parts:
            one = value[name]
            if isinstance(one, bool) or not isinstance(one, int | float | None):
                return f"{place}.{name}".lstrip(".")
        nested = value.items()
    elif isinstance(value, list):
        nested = enumerate(value)  # type: ignore[assignment]
    else:
        wrong = isinstance(value, int | float) and not abs(value) <= sys.float_info.max
        return place.lstrip(".") if wrong else None
    found = (_no_number(item, f"{place}.{name}") for name, item in nested)
    return next(filter(None, found), None)

"""JSON columns (Arrow's extension type, `Json` of `datasets`) as the values that they encode."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from vtune.files.json_text import parse_json
from vtune.schema.fields import Row

_JSON = "arrow.json"

Reader = Callable[[Any], Any]


def json_reader(schema: pa.Schema) -> Callable[[Row], Row] | None:
    """Converts the JSON in a row from Arrow to values; None if no column contains any."""
    readers = {field.name: reader for field in schema if (reader := _reader(field.type)) is not None}
    return (lambda row: _members(readers, row)) if readers else None


def _reader(kind: pa.DataType) -> Reader | None:
    if getattr(kind, "extension_name", None) == _JSON:
        return _value
    if pa.types.is_struct(kind):
        readers = {field.name: reader for field in kind if (reader := _reader(field.type)) is not None}
        return (lambda value: _members(readers, value)) if readers else None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = _reader(kind.value_type)
        return (lambda value: value and [inner(item) for item in value]) if inner is not None else None
    return None


def _members(readers: dict[str, Reader], value: Any) -> Any:
    return value and value | {name: reader(value[name]) for name, reader in readers.items()}


def _value(text: Any) -> Any:
    # Writers of such columns do not validate them: anything that is not JSON stays text.
    with suppress(ValueError, TypeError):
        return parse_json(text)
    return text

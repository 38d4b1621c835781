"""Fields of a sample that a foreign layout has no column for, kept in `extra_info` of exported files.

Other trainers pass `extra_info` through unread, so our files come back complete.
"""

import json
from collections.abc import Mapping
from typing import Any

from vtune.files.json_text import parse_json
from vtune.schema.fields import Row, wrong
from vtune.schema.sample import Sample
from vtune.schema.sample_row import sample_to_row

KEY = "vtune"
"""Key in `extra_info`."""
_COLUMNS = ("tools", "evidence", "choices")
"""Columns of our own that every row has; `environment` is there only if a sample names one."""


def pack(sample: Sample) -> str:
    """One JSON object of everything but the pictures, the turns, `data_source` and `ability`.

    Raises:
        DataError: If the sample holds something that JSON cannot represent.
    """
    row = sample_to_row(sample)
    keys = ("reward_model", "extra_info", *_COLUMNS, "environment")
    return json.dumps({key: row[key] for key in keys if row[key] is not None}, ensure_ascii=False)


def unpack(extra_info: Any) -> Mapping[str, Any] | None:
    """What `pack` wrote; None in files that are not ours.

    Raises:
        DataError: If the entry exists but is not what `pack` writes.
    """
    text = extra_info.get(KEY) if isinstance(extra_info, Mapping) else None
    if text is None:
        return None
    try:
        found = parse_json(text)
        judge = found["reward_model"]
        complete = {"extra_info", *_COLUMNS} <= set(found) and all(
            isinstance(judge[key], str) for key in ("verifier", "ground_truth")
        )
    except (TypeError, ValueError, KeyError):
        complete = False
    if not complete:
        raise wrong(f"extra_info.{KEY}", "it is not what an export writes", "export the file again")
    return found  # type: ignore[no-any-return]


def restore(row: Row, own: Mapping[str, Any], ground_truth: str) -> Row:
    """A row of our own layout: the columns that the foreign file has, and the rest as packed.

    Args:
        row: Provides `data_source`, `images`, `prompt` and `ability`.
        own: From `unpack`.
        ground_truth: As in the columns; a truth that was edited after the export stays edited.
    """
    columns = {key: row.get(key) for key in ("data_source", "images", "prompt", "ability")}
    judge = own["reward_model"] | {"ground_truth": ground_truth}
    rest = {key: own[key] for key in ("extra_info", *_COLUMNS)} | {"environment": own.get("environment")}
    return columns | rest | {"reward_model": judge}

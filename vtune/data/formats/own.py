"""Fields of a sample that a foreign layout has no column for, kept in `extra_info` of exported files.

Other trainers pass `extra_info` on and do not look into it, so our files come back whole.
"""

import json
from collections.abc import Mapping
from typing import Any

from vtune.files.json_text import parse_json
from vtune.schema.fields import Row, wrong
from vtune.schema.sample import Sample
from vtune.schema.sample_row import sample_to_row

KEY = "vtune"
"""Member of `extra_info`."""
_COLUMNS = ("tools", "evidence", "choices")
"""Of ours, in every row; `environment` only where a sample names one."""


def pack(sample: Sample) -> str:
    """One JSON object of everything but the pictures, the turns, `data_source` and `ability`.

    Raises:
        DataError: If the sample holds what JSON cannot carry.
    """
    row = sample_to_row(sample)
    keys = ("reward_model", "extra_info", *_COLUMNS, "environment")
    return json.dumps({key: row[key] for key in keys if row[key] is not None}, ensure_ascii=False)


def unpack(extra_info: Any) -> Mapping[str, Any] | None:
    """What `pack` wrote; None in files of others.

    Raises:
        DataError: If the member is there and is not what `pack` writes.
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
    """A row of our own layout: the columns that the foreign file has, and the rest as it was packed.

    Args:
        row: `data_source`, `images`, `prompt` and `ability` of it are taken.
        own: From `unpack`.
        ground_truth: What the columns say; a truth that was changed after the export stays changed.
    """
    columns = {key: row.get(key) for key in ("data_source", "images", "prompt", "ability")}
    judge = own["reward_model"] | {"ground_truth": ground_truth}
    rest = {key: own[key] for key in ("extra_info", *_COLUMNS)} | {"environment": own.get("environment")}
    return columns | rest | {"reward_model": judge}

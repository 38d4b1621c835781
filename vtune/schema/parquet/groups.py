"""Rows in portions that become row groups, so that readers hold little at a time."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vtune.schema.fields import Row

GROUP_ROWS = 512
"""Rows that a row group holds at most (ours) …"""
GROUP_BYTES = 32 * 2**20
"""… and is closed once its pictures and tokens reach this size (ours)."""
_TOKEN_BYTES = 9
"""On disk: an int32, a float32 and a mask bit a token."""


def row_groups(rows: Iterable[Row], base: Path) -> Iterator[list[Row]]:
    """Rows in the portions that become row groups, and that readers hold whole."""
    group: list[Row] = []
    size = 0
    for row in rows:
        group.append(row)
        size += sum(_weight(image) for image in row.get("images", row.get("image")) or ())
        if "token_ids" in row:
            size += _TOKEN_BYTES * len(row["token_ids"])
            # Who reads a trajectory has its pictures, wherever they lie.
            named = [base / image["path"] for image in row["images"] if image["bytes"] is None]
            size += sum(path.stat().st_size for path in named if path.is_file())
        if len(group) == GROUP_ROWS or size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _weight(image: Any) -> int:
    """Bytes of a picture: a struct, or base64."""
    return len(image) if isinstance(image, str) else len(image["bytes"] or b"")

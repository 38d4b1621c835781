"""Rows in portions that become row groups, so that readers hold little at a time."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vtune.schema.fields import Row

GROUP_ROWS = 512
"""Maximum number of rows per row group (ours) …"""
GROUP_BYTES = 32 * 2**20
"""… which is also closed once its pictures and tokens reach this size (ours)."""
_TOKEN_BYTES = 9
"""On disk per token: an int32, a float32 and a mask bit."""


def row_groups(rows: Iterable[Row], base: Path) -> Iterator[list[Row]]:
    """Rows in the portions that become row groups, and that readers hold in memory."""
    group: list[Row] = []
    size = 0
    for row in rows:
        group.append(row)
        size += sum(_weight(image) for image in row.get("images", row.get("image")) or ())
        if "token_ids" in row:
            size += _TOKEN_BYTES * len(row["token_ids"])
            # Readers of a trajectory load its pictures, wherever they are stored.
            named = [base / image["path"] for image in row["images"] if image["bytes"] is None]
            size += sum(path.stat().st_size for path in named if path.is_file())
        if len(group) == GROUP_ROWS or size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _weight(image: Any) -> int:
    """Size of a picture in bytes: a struct, or base64."""
    return len(image) if isinstance(image, str) else len(image["bytes"] or b"")

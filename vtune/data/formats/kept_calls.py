"""Calls of traces in rows of other trainers: read from what a turn shows, or kept whole beside the turns."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vtune.data.formats import own
from vtune.files.json_text import parse_json
from vtune.schema.fields import Fields, Row, wrong
from vtune.schema.message import IMAGE
from vtune.schema.trajectory import Call, Status
from vtune.schema.trajectory_row import call_from_row, call_to_row
from vtune.tools.python import NAME as PYTHON

_FAILED = re.compile(
    r"Traceback|^[^\w\n]*(?:Sandbox for \S+:|(?:\w*Error|Exception|Execution error)\b)", re.MULTILINE
)
"""How sandboxes report code that failed."""


def shown_call(tool: str, arguments: Mapping[str, Any], shown: str, images: tuple[int, ...]) -> Call:
    """A call by what a turn shows of it.

    Args:
        tool: Its name.
        arguments: Its arguments.
        shown: The text that came back, without the frame of the template.
        images: Numbers of the pictures that came back, in the trace.
    """
    words = shown.replace(IMAGE, "").strip()
    failed = tool == PYTHON and _FAILED.search(words) is not None
    status: Status = "error" if failed else "ok"
    return Call(
        tool=tool,
        arguments=json.dumps(arguments, ensure_ascii=False),
        status=status,
        error=words if failed else "",
        output="" if failed else words,
        images=images,
    )


def packed(calls: Sequence[Call]) -> str:
    """Calls as JSON for a column of their own, without pictures, which the turns show, and tokens."""
    return json.dumps([_row(call) for call in calls], ensure_ascii=False)


def _row(call: Call) -> Row:
    return {key: value for key, value in call_to_row(call).items() if key not in ("images", "span")}


def restored(kept: object, calls: Sequence[Call]) -> tuple[Call, ...]:
    """The calls of a row with what an export has kept of them; as they are where the file is not one of ours.

    Raises:
        DataError: If what was kept is not about these calls.
    """
    if kept is None:
        return tuple(calls)
    try:
        rows = [
            dict(row) | {"images": list(call.images), "span": [0, 0]}
            for call, row in zip(calls, parse_json(str(kept)), strict=True)
        ]
    except (TypeError, ValueError):
        raise wrong(
            own.KEY, "it is not what an export writes about these calls", "export the file again"
        ) from None
    return tuple(call_from_row(Fields(row, f"{own.KEY}.")) for row in rows)

"""What a trace holds besides its turns, in other trainers' rows: read from the turns, or kept beside them."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vtune.data.formats import own
from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.schema.fields import Fields, Row, wrong
from vtune.schema.message import IMAGE
from vtune.schema.trajectory import Call, Status, Trajectory
from vtune.schema.trajectory_row import call_from_row, call_to_row
from vtune.tools.python import NAME as PYTHON

_FAILED = re.compile(
    r"Traceback|^[^\w\n]*(?:Sandbox for \S+:|(?:\w*Error|Exception|Execution error)\b)", re.MULTILINE
)
"""How sandboxes report that code failed."""


def shown_call(tool: str, arguments: Mapping[str, Any], shown: str, images: tuple[int, ...]) -> Call:
    """A call, reconstructed from what a turn shows.

    Args:
        tool: Its name.
        arguments: Its arguments.
        shown: The text that came back, without the template's frame.
        images: Indices, in the trace, of the pictures that came back.
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


_MEDIA = (IMAGE, "<video>", "<audio>")


def check_kept(trace: Trajectory) -> None:
    """Check that a trace can be rebuilt from its turns and pictures, here and by other trainers.

    Other trainers count every mark in every turn: a mark that the assistant wrote would need a picture of its
    own, or take another's.

    Raises:
        DataError: If a picture is shown in no turn or out of order, if a call's result appears in no turn, or
            if a turn holds a mark that is mere text.
    """
    where = f"trace of {trace.sample_id!r}"
    if any(call.unseen for call in trace.calls):
        raise DataError("it ends with a call that was never answered", where=where, fix="leave it out")
    shown = [number for message in trace.messages for number in message.images]
    if missing := sorted(set(range(len(trace.images))) - set(shown)):
        raise DataError(f"picture {missing[0]} is shown in no turn", where=where, fix="leave it out")
    if shown != sorted(set(shown)):
        raise DataError("a picture is shown twice, or before its turn", where=where, fix="leave it out")
    for number, message in enumerate(trace.messages):
        text = message.content.replace(IMAGE, "") if message.images else message.content
        if mark := next((mark for mark in _MEDIA if mark in text), None):
            raise DataError(
                f"message {number}, of the {message.role}, says {mark}, which trainers take for a picture, "
                "video or sound",
                where=where,
                fix="leave it out",
            )


def packed(trace: Trajectory) -> str:
    """The calls of a trace, and its answer, as JSON for a separate column.

    Pictures, which the turns show, and tokens are left out.
    """
    kept = {"calls": [_row(call) for call in trace.calls], "answer": trace.answer}
    return json.dumps(kept, ensure_ascii=False)


def _row(call: Call) -> Row:
    return {key: value for key, value in call_to_row(call).items() if key not in ("images", "span")}


def restored(trace: Trajectory, kept: object) -> Trajectory:
    """A trace with what an export kept of it restored.

    Args:
        trace: As read from its turns.
        kept: From `packed`; None if the file is not one of ours.

    Raises:
        DataError: If what was kept does not match these calls.
    """
    if kept is None:
        return trace
    try:
        rows = parse_json(str(kept))
        if isinstance(rows, Mapping):  # older exports kept only the calls
            trace = replace(trace, answer=rows["answer"])
            rows = rows["calls"]
        rows = [
            dict(row) | {"images": list(call.images), "span": [0, 0]}
            for call, row in zip(trace.calls, rows, strict=True)
        ]
    except (TypeError, ValueError, KeyError):
        raise wrong(
            own.KEY, "it is not what an export writes about these calls", "export the file again"
        ) from None
    return replace(trace, calls=tuple(call_from_row(Fields(row, f"{own.KEY}.")) for row in rows))

"""Thyme-SFT: cold-start traces that store a whole conversation in one text, read and written.

A response holds `<code>` blocks, each followed by the sandbox's answer in `<sandbox_output>`. Here these
become turns: what the policy writes, and what it is shown, which is never trained on.
"""

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from vtune.data.formats import own, specimens_traces
from vtune.data.formats.building import Found, Options, each
from vtune.data.formats.kept_calls import check_kept, packed, restored, shown_call
from vtune.data.formats.source import Place, read_rows
from vtune.data.formats.table import FORMATS, Format, Writer
from vtune.data.formats.values import first, marked, needed, pictures, text_of
from vtune.errors import DataError
from vtune.schema.fields import Row, wrong
from vtune.schema.message import IMAGE, Message
from vtune.schema.trajectory import Call, Trajectory
from vtune.tools.python import NAME as PYTHON
from vtune.verifiers.tags import tagged

THYME_COLUMNS = pa.schema(
    [
        ("image", pa.list_(pa.string())),
        ("question", pa.string()),
        ("response", pa.string()),
        ("id", pa.string()),
        ("data_source", pa.string()),
        (own.KEY, pa.string()),
    ]
)
"""The published columns, plus an id, a source and the calls, so that traces round-trip unchanged."""
_OUTPUT = re.compile(r"<sandbox_output>((?:(?!</?sandbox_output>).)*)</sandbox_output>", re.DOTALL)
"""Never scans past the next tag: a response may be flooded with tags."""
_OUTPUT_MARK = re.compile(r"</?sandbox_output>")


def read_thyme(path: Path, options: Options) -> Iterator[Found]:
    """Traces of Thyme's files, Parquet or the JSON lines that its converter makes, one entry per row."""
    return each(read_rows(path), lambda row, place: thyme_trace(row, place, options))


def thyme_trace(row: Row, place: Place, options: Options) -> Trajectory:
    """The trace of a row.

    Raises:
        DataError: If marks and pictures differ in number, code and outputs do not alternate, or the
            response ends without an answer.
    """
    images = pictures("image", needed(row, "image", "images"), options.base(place.file))
    question = text_of("question", needed(row, "question"))
    response = text_of("response", needed(row, "response")).strip()
    pieces = [piece.strip() for piece in _OUTPUT.split(response)]
    if any(_OUTPUT_MARK.search(written) for written in pieces[::2]):
        # Otherwise it would be trained on as the assistant's text.
        raise wrong("response", "a <sandbox_output> has no end, or no beginning", "correct or drop the row")
    asked = marked(question, len(images) - sum(piece.count(IMAGE) for piece in pieces[1::2]))
    shown = asked.count(IMAGE)
    messages = [Message("user", asked, tuple(range(shown)))]
    kept = list(images[:shown])
    calls: list[Call] = []
    for written, output in zip(pieces[::2], [*pieces[1::2], None], strict=True):
        messages.append(Message("assistant", written))
        if output is None:
            break
        _, found, code = written.partition("<code>")
        if not found or not code.endswith("</code>"):
            raise wrong("response", "a sandbox output has no <code>…</code> before it", "drop the row")
        numbers = tuple(range(shown, shown + output.count(IMAGE)))
        returned = images[shown : shown + len(numbers)]
        kept += [replace(picture, origin=f"call:{len(calls)}") for picture in returned]
        shown += len(numbers)
        messages.append(Message("user", f"<sandbox_output>\n{output}\n</sandbox_output>", numbers))
        calls.append(shown_call(PYTHON, {"code": code.removesuffix("</code>")}, output, numbers))
    if shown != len(images):
        raise wrong(
            "image",
            f"{len(images)} pictures for {shown} {IMAGE} mark(s) in question and outputs",
            "drop the row, or fix its marks",
        )
    answer = tagged(messages[-1].content, "answer")
    if answer is None:
        raise wrong("response", "the last turn has no <answer>", "drop the row: a trace ends with its answer")
    source = first(row, "data_source")
    identity = first(row, "id")
    trace = Trajectory(
        sample_id=f"thyme/{place.id}" if identity is None else text_of("id", identity),
        source="thyme" if source is None else text_of("data_source", source),
        messages=tuple(messages),
        images=tuple(kept),
        calls=tuple(calls),
        answer=answer.strip() if messages[-1].content.count("</answer>") == 1 else None,
    )
    return restored(trace, row.get(own.KEY))


def thyme_row(trace: Trajectory, index: int) -> Row:
    """A trace as Thyme's converter reads it. Token ids and rewards cannot be stored.

    Args:
        trace: Its pictures hold their bytes.
        index: Row number.

    Raises:
        DataError: If it does not begin with one user turn, calls a tool other than code, has a picture
            without bytes or a turn that the layout would split differently, ends without an answer, or its
            turns and pictures do not represent it completely (see `check_kept`).
    """
    opening, *rest = trace.messages
    if opening.role != "user" or not rest or rest[0].role != "assistant":
        raise DataError(
            "Thyme's layout has one user turn before the response",
            where=f"trace of {trace.sample_id!r}",
            fix="export traces without a system turn",
        )
    if others := sorted({call.tool for call in trace.calls} - {PYTHON}):
        raise DataError(
            f"Thyme's layout holds code, but no calls of {', '.join(others)}",
            where=f"trace of {trace.sample_id!r}",
            fix="export traces whose only tool is python",
        )
    check_kept(trace)
    _check_framed(rest, f"trace of {trace.sample_id!r}")
    if any(picture.data is None for picture in trace.images):
        raise DataError("a picture of the trace has no bytes", where=f"trace of {trace.sample_id!r}")
    return {
        "image": [base64.b64encode(picture.data or b"").decode() for picture in trace.images],
        "question": opening.content,
        "response": "".join(
            message.content if message.role == "assistant" else f"\n{message.content}\n" for message in rest
        ),
        "id": trace.sample_id,
        "data_source": trace.source,
        own.KEY: packed(trace),
    }


def _check_framed(turns: Sequence[Message], where: str) -> None:
    """Check that the turns can be told apart in one text with `<sandbox_output>` and `<answer>`."""
    for number, turn in enumerate(turns):
        output = number % 2 == 1
        framed = _OUTPUT.fullmatch(turn.content.strip()) is not None
        if {output, framed} != {turn.role == "user"} or (not framed and _OUTPUT_MARK.search(turn.content)):
            raise DataError(
                "a turn cannot be separated from the next: Thyme's layout has what a tool says, and "
                "nothing else, in <sandbox_output>",
                where=where,
                fix="leave it out, or export it as `conversations`",
            )
        _, found, code = turns[number - 1].content.strip().partition("<code>") if output else ("", "", "")
        if output and not (found and code.endswith("</code>")):
            raise DataError(
                "a <sandbox_output> has no <code>…</code> before it",
                where=where,
                fix="leave it out, or export it as `conversations`",
            )
    if tagged(turns[-1].content, "answer") is None:
        raise DataError(
            "Thyme's layout must end with an <answer>",
            where=where,
            fix="leave it out, or export it as `conversations`",
        )


FORMATS.add(
    "thyme",
    Format(
        read_thyme,
        "Parquet or JSON lines of Thyme-SFT",
        "traces",
        ("images",),
        looks=lambda glance: glance.judge is None and {"question", "response"} <= glance.row.keys(),
        specimen=specimens_traces.thyme,
        writes=Writer(thyme_row, THYME_COLUMNS),
    ),
)

"""Cold-start traces of other trainers: chat turns (ms-swift, TRL) or ShareGPT (LLaMA-Factory).

Tool calls appear inside the turns (`<code>`, `<tool_call>`), in separate turns, or in `tool_calls`. Here they
become part of the assistant's text, in the template of `vtune.tools.calls`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from vtune.data.formats import own, specimens_traces
from vtune.data.formats.building import Found, Options, each
from vtune.data.formats.chat_turns import (
    ASKED,
    COMPLETION,
    OUTPUT_CLOSE,
    OUTPUT_OPEN,
    PAIR,
    PROMPT,
    TURNS,
    ChatTurn,
    chat_turns,
    final_code,
)
from vtune.data.formats.kept_calls import check_kept, packed, restored, shown_call
from vtune.data.formats.source import Place, read_rows
from vtune.data.formats.table import FORMATS, Format, Glance, Writer
from vtune.data.formats.values import first, has_objects, marked, pictures, text_of
from vtune.errors import DataError
from vtune.schema.fields import Row, wrong
from vtune.schema.message import IMAGE, Message, Picture, Role
from vtune.schema.trajectory import Call, Trajectory
from vtune.tools.calls import ANSWER_CLOSE, ANSWER_OPEN, OPEN, read_calls, responses
from vtune.tools.python import NAME as PYTHON
from vtune.verifiers.tags import answer

CONVERSATION_COLUMNS = pa.schema(
    [
        ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("images", pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))),
        ("id", pa.string()),
        ("data_source", pa.string()),
        (own.KEY, pa.string()),
    ]
)
"""The trainers' columns, plus an id, a source and the calls, so that traces round-trip unchanged."""


def read_conversations(path: Path, options: Options) -> Iterator[Found]:
    """Traces of Parquet, JSON or JSON lines, one entry per row."""
    return each(read_rows(path), lambda row, place: conversation_trace(row, place, options))


def conversation_trace(row: Row, place: Place, options: Options) -> Trajectory:
    """The trace of a row.

    Raises:
        DataError: If the turns do not follow the layout, the numbers of marks and pictures differ, a turn
            shows a result that no call asked for, a turn of the assistant contains tool output, or the row
            has what a trace cannot hold: turns that are not learnt, rejected replies, other media, boxes in
            a separate column.
    """
    if place.file.suffix == ".parquet":
        row = _without_nulls(row)
    _check_held(row)
    turns = chat_turns(row)
    images = _pictures(row, turns, options.base(place.file))
    kept = row.get(own.KEY)
    messages, calls, origins = _spoken(turns, may_fail=kept is not None)
    if kept is None:  # our own export keeps what a policy wrote, whatever it is
        _check_written(messages)
    if kept is None and messages[-1].role != "assistant":
        raise wrong(
            "messages",
            "a trace must end with an assistant turn",
            "drop the row or complete it; questions whose answer is a column (`solution` of GRPO) are "
            "samples: `vtune data import hf --columns` with `question: messages`",
        )
    shown = sum(len(message.images) for message in messages)
    if shown != len(images):
        raise wrong(
            "images",
            f"{len(images)} pictures for {shown} {IMAGE} mark(s) in what the assistant is shown",
            "drop the row, or fix its marks",
        )
    identity, source = first(row, "id", "index"), first(row, "data_source", "dataset", "source")
    trace = Trajectory(
        sample_id=f"conversations/{place.id}" if identity is None else text_of("id", identity),
        source="conversations" if source is None else text_of("source", source),
        messages=tuple(messages),
        images=tuple(replace(picture, origin=origins[number]) for number, picture in enumerate(images)),
        calls=tuple(calls),
    )
    return restored(replace(trace, answer=answer(trace.reply)), kept)


def _without_nulls(value: Any) -> Any:
    """A value without Parquet's nulls: its structs have the keys of all rows, calls those of all tools."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _check_held(row: Row) -> None:
    _check_preferred(row)
    for column in ("videos", "video", "audios", "audio"):
        if row.get(column):
            raise wrong(column, "a trace can show only pictures", "drop the row")
    if has_objects(row):
        raise wrong(
            "objects",
            "boxes are given apart from the turns",
            "write them into the turns, in the coordinates that the model reads, or drop the row",
        )


REJECTED = ("rejected", "rejected_response", "rejected_messages", "rejected_images")
"""Columns of rejected replies in TRL, ms-swift and LLaMA-Factory."""


def _check_preferred(row: Row) -> None:
    """Check that a row holds no rejected reply.

    A supervised run imitates every trace: a rejected reply would be learnt, and one stored beside a chosen
    reply would be dropped silently.
    """
    tags = (name for name in ("label", "kto_tag") if str(row.get(name)).lower() == "false")
    if tag := next(tags, None):
        raise wrong(tag, "the reply is a rejected one (false), but every trace is learnt", "drop the row")
    if rejected := next((name for name in REJECTED if row.get(name)), None):
        raise wrong(
            rejected,
            "the row is a pair of a chosen and a rejected reply, but a trace holds only one",
            f"drop the row; or, to learn the chosen one alone, let it be the last turn and drop `{rejected}`",
        )


def _pictures(row: Row, turns: list[ChatTurn], base: Path) -> tuple[Picture, ...]:
    """The pictures in the order of their marks; without any marks, they go before the first question."""
    inside = [item for turn in turns for item in turn.pictures]
    beside = first(row, "images", "image")
    if inside:
        if beside:
            raise wrong(
                "images", "pictures are given both in the turns and beside them", "keep one of the two"
            )
        return pictures(TURNS[0], inside, base)
    found = pictures("images", beside, base)
    if not any(IMAGE in turn.text for turn in turns if turn.role != "assistant"):
        asked = next((turn for turn in turns if turn.role == ASKED), None)
        if asked is not None:
            asked.text = marked(asked.text, len(found))
    return found


def _spoken(turns: Sequence[ChatTurn], *, may_fail: bool) -> tuple[list[Message], list[Call], list[str]]:
    """Messages, calls, and the origin of each picture shown.

    Args:
        turns: The row's turns.
        may_fail: Whether each call's outcome is stored; if so, a call that could not run is allowed.
    """
    messages: list[Message] = []
    calls: list[Call] = []
    origins: list[str] = []
    begun = False
    for number, turn in enumerate(turns):
        if turn.role == "assistant":
            begun = True
            messages.append(Message("assistant", turn.text))
            continue
        numbers = tuple(range(len(origins), len(origins) + turn.text.count(IMAGE)))
        role: Role = "system" if turn.role == "system" else "user"
        messages.append(Message(role, turn.text, numbers))
        if not begun:
            origins += ["input"] * len(numbers)
            continue
        made = _answered(turns[number - 1], turn, number, numbers, may_fail=may_fail)
        origins += [f"call:{len(calls) + k}" for k, call in enumerate(made) for _ in call.images]
        calls += made
    return messages, calls, origins


_OUTPUTS = re.compile(
    r"</(?:tool_response|sandbox_output|information|interpreter|observation)>|</search>\s*<result>"
    r"|<\|end_of_documents\|>|<\|end_search_result\|>"
)
"""Tool output in Qwen's template, Thyme, Search-R1, ReTool, AFM, ReSearch, R1-Searcher and Search-o1."""


def _check_written(messages: Sequence[Message]) -> None:
    """Check that no turn of the assistant contains tool output, which would be learnt as its own words."""
    for number, message in enumerate(messages):
        if message.role == "assistant" and (found := _OUTPUTS.search(message.content)):
            raise DataError(
                f"a turn of the assistant contains tool output ({found[0]}), which would be learnt",
                where=f"turn {number}",
                fix="split it: output belongs in turns of `tool`; a question with its `response` in one text "
                "is read by `thyme`",
            )


def _answered(
    said: ChatTurn, back: ChatTurn, number: int, numbers: Sequence[int], *, may_fail: bool
) -> list[Call]:
    """The calls of a turn with what the next turn returns for them.

    Raises:
        DataError: If the turn makes no call, the numbers of calls and answers differ, or, unless `may_fail`,
            a call cannot run.
    """
    where = f"turn {number}"
    if (code := final_code(said.text)) is not None:
        return [shown_call(PYTHON, {"code": code}, _shown(back.text), tuple(numbers))]
    written = read_calls(said.text, None)
    if not written:
        raise DataError(
            f"it follows a turn of the assistant that neither ends with </code> nor has a {OPEN}",
            where=where,
            fix="a trace is one question: cut the conversation before this turn, or drop the row",
        )
    problem = next((call.problem for call in written if call.problem), "")
    if problem and not may_fail:
        raise DataError(problem, where=f"turn {number - 1}", fix="fix the call, or drop the row")
    if responses(back.text) != len(written):
        raise DataError(
            f"it answers {responses(back.text)} of {len(written)} calls",
            where=where,
            fix=f"give the answer to each call its own {ANSWER_OPEN}, or drop the row",
        )
    frames = back.text.split(ANSWER_CLOSE) if len(written) > 1 else [back.text]
    made, start = [], 0
    for call, frame in zip(written, frames, strict=False):  # text after the last frame is not an answer
        end = start + frame.count(IMAGE) if call is not written[-1] else len(numbers)
        made.append(shown_call(call.tool, call.arguments, _shown(frame), tuple(numbers[start:end])))
        start = end
    return made


def _shown(back: str) -> str:
    """What came back, without the frame that its template puts around it."""
    for mark in (ANSWER_OPEN, ANSWER_CLOSE, OUTPUT_OPEN, OUTPUT_CLOSE):
        back = back.replace(mark, "")
    return back


def conversation_row(trace: Trajectory, index: int) -> Row:
    """A trace as ms-swift and LLaMA-Factory read it. Token ids and rewards cannot be stored.

    A tool's output is stored as a user turn, in the frame in which the policy reads it: a tool turn would get
    the frame of the trainer's own template as well.

    Args:
        trace: Its pictures hold their bytes.
        index: Row number.

    Raises:
        DataError: If it cannot be learnt from, a picture has no bytes, or the turns and pictures do not
            represent it completely (see `check_kept`).
    """
    where = f"trace of {trace.sample_id!r}"
    if trace.messages[-1].role != "assistant":
        raise DataError("the trace does not end with the assistant", where=where, fix="leave it out")
    check_kept(trace)
    if any(picture.data is None for picture in trace.images):
        raise DataError("a picture of the trace has no bytes", where=where)
    return {
        "messages": [{"role": message.role, "content": message.content} for message in trace.messages],
        "images": [{"bytes": picture.data, "path": None} for picture in trace.images],
        "id": trace.sample_id,
        "data_source": trace.source,
        own.KEY: packed(trace),
    }


def is_conversation(glance: Glance) -> bool:
    """Whether a row has turns including the assistant's, or a prompt and its completion, and no judge."""
    turns = first(glance.row, "messages", "conversations", "conversation")
    spoken = turns if isinstance(turns, list) else []
    roles = [first(turn, "role", "from") for turn in spoken if isinstance(turn, Mapping)]
    paired = any(isinstance(turn, Mapping) and turn.keys() >= PAIR for turn in spoken)
    learnt = paired or {"assistant", "gpt"} & {*roles} or {PROMPT, COMPLETION} <= glance.row.keys()
    return glance.judge is None and bool(learnt)


FORMATS.add(
    "conversations",
    Format(
        read_conversations,
        "chat turns of ms-swift, TRL, LLaMA-Factory",
        "traces",
        ("images",),
        aliases=("sharegpt", "llava"),
        looks=is_conversation,
        broad=True,
        specimen=specimens_traces.conversations,
        writes=Writer(conversation_row, CONVERSATION_COLUMNS),
    ),
)

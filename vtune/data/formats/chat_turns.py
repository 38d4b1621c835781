"""Chat turns as trainers store them: roles, parts, calls in separate turns or in `tool_calls`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from vtune.data.formats.values import PICTURED, first, needed, pictures_of_part, text_of
from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.schema.fields import Row, mistyped, wrong
from vtune.schema.message import IMAGE
from vtune.tools.calls import ANSWER_CLOSE, ANSWER_OPEN, CLOSE, OPEN, tool_response, tools_block

PAIR = {"human", "assistant"}
"""Keys of a question and its reply in one item, in ms-swift's ShareGPT."""
TURNS = ("messages", "conversations", "conversation")
"""Columns that may hold the turns."""
PROMPT, COMPLETION = "prompt", "completion"
"""TRL's columns for what is read and what is learnt: turns, or a text."""
ASKED, _CALLED, _RETURNED = "user", "call", "tool"
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": ASKED,
    "human": ASKED,
    "assistant": "assistant",
    "gpt": "assistant",
    "tool_call": _CALLED,
    "function_call": _CALLED,
    "tool": _RETURNED,
    "tool_response": _RETURNED,
    "function": _RETURNED,
    "observation": _RETURNED,
}
"""Names of speakers in the trainers' formats -> role here."""
_LEARNT = ("loss", "loss_scale", "weight")
"""Keys with which ms-swift and OpenAI mark whether, or how strongly, a turn is learnt."""
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""Keys of a turn with its thoughts: DeepSeek's and Qwen's, vLLM's, and those of TRL's data for gpt-oss."""
_CODE_OPEN, _CODE_CLOSE = "<code>", "</code>"
OUTPUT_OPEN, OUTPUT_CLOSE = "<sandbox_output>", "</sandbox_output>"
_FRAMES = ((ANSWER_OPEN, ANSWER_CLOSE), (OUTPUT_OPEN, OUTPUT_CLOSE))
"""How the output of a tool begins and ends in the form that the policy reads."""


@dataclass(slots=True)
class ChatTurn:
    """A turn as stored in the file."""

    role: str
    text: str
    pictures: list[Any]
    """Pictures inside the turn itself."""
    ids: tuple[str, ...] = ()
    """Of its calls, or of the call that it answers; empty unless each has one."""


def chat_turns(row: Row) -> list[ChatTurn]:
    """The turns of a row, alternating from the assistant's first turn on, with the tools that the row offers.

    Raises:
        DataError: If they do not follow the layout, a tool answers a call that no turn makes, or a turn is
            marked as not to be learnt.
    """
    turns = _turns(row)
    _check_order(turns)
    turns = _joined(_paired(turns))
    if (schemas := _schemas(row)) and not any("<tools>" in turn.text for turn in turns):
        _offer(turns, schemas)
    return turns


def _turns(row: Row) -> list[ChatTurn]:
    """The turns of a row, starting with a system text that is stored in its own column."""
    if row.get(COMPLETION) is not None and first(row, *TURNS) is None:
        turns = _prompted(row)
    else:
        value = needed(row, *TURNS)
        column = next(name for name in TURNS if row.get(name) is not None)
        turns = _listed(column, _json(column, value) if isinstance(value, str) else value)
    system = row.get("system")
    if system and turns[0].role != "system":
        turns.insert(0, ChatTurn("system", text_of("system", system), []))
    return turns


def _prompted(row: Row) -> list[ChatTurn]:
    """The turns of a prompt and its completion. A text is one turn and is not parsed as JSON, as an answer
    may be a list.

    Raises:
        DataError: If the prompt has an assistant turn: TRL learns only the completion.
    """
    asked, said = needed(row, PROMPT), row[COMPLETION]
    if isinstance(asked, str):
        asked = [{"role": "user", "content": asked}]
    if isinstance(said, str):
        said = [{"role": "assistant", "content": said}]
    before = _listed(PROMPT, asked)
    if any(turn.role in ("assistant", _CALLED) for turn in before):
        raise wrong(
            PROMPT,
            "it has an assistant turn that is not to be learnt, but a trace teaches all of them",
            "drop the row, or move that turn into `completion`, where it is learnt",
        )
    return before + _listed(COMPLETION, said)


def _listed(column: str, value: Any) -> list[ChatTurn]:
    if not isinstance(value, list) or not value:
        raise mistyped(column, value, "a list of turns {role, content} or {from, value}")
    spoken = [turn for item in value for turn in _exchange(item)]
    return [_turn(column, item, number) for number, item in enumerate(spoken)]


def _exchange(item: Any) -> list[Any]:
    """The turns of an item: itself, or both of ms-swift's {human, assistant}, which holds two."""
    if not isinstance(item, Mapping) or {"role", "from"} & item.keys() or not PAIR.issubset(item):
        return [item]
    return [{"role": who, "content": item[who]} for who in ("human", "assistant")]


def _turn(column: str, item: Any, number: int) -> ChatTurn:
    if not isinstance(item, Mapping):
        raise mistyped(f"{column}[{number}]", item, "a turn {role, content} or {from, value}")
    speaker = first(item, "role", "from")
    role = _ROLES.get(speaker) if isinstance(speaker, str) else None
    if role is None:
        raise wrong(
            f"{column}[{number}]", f"a turn has the role {speaker!r}", f"name one of {', '.join(_ROLES)}"
        )
    if role in ("assistant", _CALLED):
        _check_learnt(f"{column}[{number}]", item)
    text, shown = _content(f"{column}[{number}].content", first(item, "content", "value"))
    thought = next((key for key in _THOUGHTS if item.get(key)), None)
    if thought is not None and role == "assistant":
        said = text_of(f"{column}[{number}].{thought}", item[thought])
        text = f"<think>\n{said}\n</think>\n\n{text}".rstrip()
    if role == _CALLED:
        thought, end, said = text.rpartition("</think>")  # LLaMA-Factory puts it in the call turn
        calls = _json(column, said)
        calls = _written(column, calls if isinstance(calls, list) else [calls])
        text = f"{thought}{end}\n{calls}" if end else calls
    elif asked := item.get("tool_calls"):
        if not isinstance(asked, list):
            raise mistyped(f"{column}[{number}].tool_calls", asked, "a list of calls")
        inner = [call.get("function") or call if isinstance(call, Mapping) else call for call in asked]
        calls = _written(column, inner)
        text = f"{text}\n{calls}" if text else calls
    return ChatTurn(role, text, shown, _ids(item))


def _check_learnt(where: str, item: Mapping[str, Any]) -> None:
    """Check that an assistant turn is to be learnt, and all of it with weight 1."""
    for key in _LEARNT:
        value = item.get(key)
        weights = value if isinstance(value, list) else [] if value is None else [value]
        odd = [one for one in weights if not one or (isinstance(one, int | float) and one != 1)]
        if odd and not odd[0]:
            problem = "the turn is not to be learnt, but a trace teaches all assistant turns"
        elif odd:
            problem = f"the turn is to be learnt with weight {odd[0]}, but a trace teaches all tokens alike"
        else:
            continue
        raise wrong(f"{where}.{key}", problem, "drop the row")


def _ids(item: Mapping[str, Any]) -> tuple[str, ...]:
    """Ids of the calls of a turn in `tool_calls`, or of the call that a tool's turn answers."""
    calls = item.get("tool_calls") or [{"id": item.get("tool_call_id")}]
    found = [call.get("id") for call in calls if isinstance(call, Mapping)]
    known = tuple(one for one in found if isinstance(one, str) and one)
    return known if len(set(known)) == len(calls) else ()


def _check_order(turns: Sequence[ChatTurn]) -> None:
    """Check that a question comes first, and that nothing but answers to calls comes from elsewhere."""
    begun = False
    for number, turn in enumerate(turns):
        mine = turn.role in ("assistant", _CALLED)
        if turn.role == _RETURNED and not begun:
            raise DataError(
                "a tool answers before the assistant has made a call",
                where=f"turn {number}",
                fix="restore the turn that makes the call, or drop the row",
            )
        if turn.role == "system" and begun:
            raise DataError(
                "a system turn comes after the assistant's first turn",
                where=f"turn {number}",
                fix="move its text to the beginning, or drop the row",
            )
        if mine and number == 0:
            raise DataError(
                "a trace begins with an assistant turn", fix="drop that turn, or put the question before it"
            )
        begun |= mine


def _paired(turns: Sequence[ChatTurn]) -> list[ChatTurn]:
    """Turns with the answers to several calls in the order of the calls, where ids say which is which."""
    found = list(turns)
    for number, turn in enumerate(turns):
        if turn.role != "assistant" or not turn.ids:
            continue
        answers = list(takewhile(lambda one: one.role == _RETURNED and one.ids, turns[number + 1 :]))
        if stray := next((one.ids[0] for one in answers if one.ids[0] not in turn.ids), None):
            raise DataError(
                f"a tool answers the call {stray!r}, but the calls before it are {', '.join(turn.ids)}",
                where=f"turn {number}",
                fix="fix its `tool_call_id`, or drop the row",
            )
        place = {name: index for index, name in enumerate(turn.ids)}
        in_order = sorted(answers, key=lambda one: place[one.ids[0]])
        if in_order != answers and any(IMAGE in one.text and not one.pictures for one in answers):
            raise DataError(
                "tools answer in another order than they were called in, with pictures beside the turns",
                where=f"turn {number + 1}",
                fix="order the answers and their pictures as the calls, or drop the row",
            )
        found[number + 1 : number + 1 + len(answers)] = in_order
    return found


def _content(column: str, value: Any) -> tuple[str, list[Any]]:
    """The text of a turn, with a mark for each picture, and its inline pictures."""
    if value is None or isinstance(value, str):
        return value or "", []
    if not isinstance(value, list):
        raise mistyped(column, value, "a text or parts {type, …}")
    text, shown = "", []
    for part in value:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in PICTURED:
            shown += pictures_of_part(part)
            text += IMAGE
        elif kind == "text" and isinstance(part.get("text"), str):
            text += part["text"]
        else:
            raise mistyped(column, part, "a part {type: text, text} or {type: image}")
    return text, shown


def _written(column: str, calls: Sequence[Any]) -> str:
    """Calls in the form in which the assistant writes them."""
    lines = []
    for call in calls:
        name = call.get("name") if isinstance(call, Mapping) else None
        if not isinstance(name, str):
            raise mistyped(column, call, "a call {name, arguments}")
        arguments = call.get("arguments")
        if isinstance(arguments, str):
            arguments = _json(f"{column}: arguments of {name}", arguments)
        if not isinstance(arguments, Mapping):
            raise mistyped(f"{column}: arguments of {name}", arguments, "an object")
        said = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
        lines.append(f"{OPEN}\n{said}\n{CLOSE}")
    return "\n".join(lines)


def _joined(turns: Sequence[ChatTurn]) -> list[ChatTurn]:
    """Turns that alternate from the assistant's first turn on: what it writes, and what comes back."""
    found: list[ChatTurn] = []
    begun = False
    for turn in turns:
        mine = turn.role in ("assistant", _CALLED)
        begun |= mine
        role = "assistant" if mine else turn.role
        text = _framed(turn.text, found) if role == _RETURNED else turn.text
        if found and begun and mine == (found[-1].role == "assistant"):
            before = found[-1]
            between = "\n" if before.text and text else ""
            found[-1] = ChatTurn(before.role, before.text + between + text, before.pictures + turn.pictures)
        else:
            found.append(ChatTurn(role, text, turn.pictures))
    return found


def _framed(text: str, before: Sequence[ChatTurn]) -> str:
    """A tool's output, framed as its call requires unless it already has a frame.

    Marks of a frame inside the output are made inert, as in a rollout: a page may be about them.
    """
    if any(text.lstrip().startswith(mark) and end in text for mark, end in _FRAMES):
        return text
    for mark in (*_FRAMES[0], *_FRAMES[1]):
        text = text.replace(mark, f"< {mark[1:]}")
    by_code = bool(before) and final_code(before[-1].text) is not None
    return f"{OUTPUT_OPEN}\n{text}\n{OUTPUT_CLOSE}" if by_code else tool_response(text)


def final_code(text: str) -> str | None:
    """The code at the end of a turn; None if the turn does not end with code."""
    text = text.rstrip()
    if not text.endswith(_CODE_CLOSE) or _CODE_OPEN not in text:
        return None
    return text.removesuffix(_CODE_CLOSE).rpartition(_CODE_OPEN)[2]


def _schemas(row: Row) -> list[Mapping[str, Any]]:
    """The tools that a row offers, each as {type, function}."""
    value = row.get("tools")
    if isinstance(value, str):
        value = _json("tools", value) if value.strip() else None
    if not value:
        return []
    items = value if isinstance(value, list) else [value]
    items = [_json("tools", item) if isinstance(item, str) else item for item in items]
    for item in items:
        if not isinstance(item, Mapping) or not isinstance(item.get("function", item), Mapping):
            raise mistyped("tools", item, "the schema of a tool")
    return [item if "function" in item else {"type": "function", "function": item} for item in items]


def _offer(turns: list[ChatTurn], schemas: Sequence[Mapping[str, Any]]) -> None:
    """Add the tools at the end of the system turn, as the chat template does."""
    block = tools_block(schemas)
    if turns[0].role == "system":
        turns[0].text = f"{turns[0].text}\n\n{block}"
    else:
        turns.insert(0, ChatTurn("system", block, []))


def _json(column: str, text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise wrong(column, f"it is not JSON: {error}", "correct or drop the row") from None

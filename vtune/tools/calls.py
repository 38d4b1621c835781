"""Calls in the tool template: a tag around JSON that the policy writes, another around the result."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vtune.models.families.hermes import HERMES
from vtune.tools import INVALID as INVALID
from vtune.tools import TOOLS

TEMPLATE = HERMES
"""The template of calls in conversations, traces and rewards, whatever the model family."""

OPEN, CLOSE, ANSWER_OPEN, ANSWER_CLOSE = TEMPLATE.tags

MOST = 8
"""Limit on the calls of one turn that are run; ours: a model that writes many must not flood a service."""

_CALL = re.compile(rf"{OPEN}(.*?)(?:{CLOSE}|(?={OPEN})|\Z)", re.DOTALL)


def is_search(tool: str) -> bool:
    """Whether a tool may find nothing; not of a tool that is not known here."""
    return tool in TOOLS and bool(TOOLS[tool].nothing)


def found_nothing(tool: str, output: str) -> bool:
    """Whether this output of a tool says that a search found nothing."""
    return is_search(tool) and output.strip() == TOOLS[tool].nothing


@dataclass(frozen=True, slots=True)
class Asked:
    """One call as the policy wrote it."""

    tool: str
    """Name of an offered tool, or `INVALID`."""
    arguments: Mapping[str, Any]
    """Its arguments from the JSON; for an invalid call {"text": what was written}."""
    problem: str
    """Why it cannot run, as told to the model; empty if it can be tried."""
    end: int
    """Index after its last character in the turn."""


def read_calls(turn: str, offered: Sequence[str] | None) -> list[Asked]:
    """The calls of a turn, in order; [] if it makes none.

    Malformed or excess calls are the model's mistake: they are kept, as calls that have already failed.

    Args:
        turn: What the policy wrote in one turn.
        offered: Names of the tools that its sample offers; None allows any.
    """
    calls = [
        _read(found[1], found[0].endswith(CLOSE), found.end(), offered) for found in _CALL.finditer(turn)
    ]
    too_many = f"this call did not run: a turn may have {MOST} calls"
    return [
        call if number < MOST or call.problem else replace(call, problem=too_many)
        for number, call in enumerate(calls)
    ]


def _read(text: str, closed: bool, end: int, offered: Sequence[str] | None) -> Asked:
    def invalid(problem: str) -> Asked:
        return Asked(INVALID, {"text": text.strip()}, problem, end)

    if not closed:
        return invalid(f"the tool call has no {CLOSE}")
    try:
        value = _parsed(text)
    except (ValueError, RecursionError) as error:
        return invalid(f"the tool call is not JSON: {str(error)[:200]}")
    if not isinstance(value, dict) or set(value) != {"name", "arguments"}:
        return invalid('a tool call is an object with "name" and "arguments" and nothing else')
    name, arguments = value["name"], value["arguments"]
    if not isinstance(name, str) or (offered is not None and name not in offered):
        known = f"; the tools are {', '.join(offered)}" if offered is not None else ""
        return invalid(f"there is no tool {json.dumps(name)[:80]}{known}")
    if not isinstance(arguments, dict):
        return invalid('"arguments" is an object')
    return Asked(name, arguments, "", end)


def _parsed(text: str) -> Any:
    """The value; anything not writable as JSON and UTF-8 again (NaN, half a surrogate pair) is refused."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no number of JSON")

    value = json.loads(text, parse_constant=refuse)
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return value


def is_valid(turn: str) -> bool:
    """Whether a turn contains exactly one call, in JSON with a name and arguments."""
    calls = _CALL.findall(turn)
    if len(calls) != 1 or CLOSE not in turn:
        return False
    try:
        value = _parsed(calls[0])
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(value, dict)
        and set(value) == {"name", "arguments"}
        and isinstance(value["name"], str)
        and isinstance(value["arguments"], dict)
    )


def tool_response(text: str) -> str:
    """A tool's output in the frame of the template."""
    return f"{ANSWER_OPEN}\n{text}\n{ANSWER_CLOSE}"


def responses(turn: str) -> int:
    """How many calls a turn of tool output answers: one per frame, or one if there is no frame."""
    return max(turn.count(ANSWER_OPEN), 1)


def tools_block(schemas: Sequence[Mapping[str, Any]]) -> str:
    """The end of the system turn that offers tools, as in the template.

    Args:
        schemas: One per tool: {"type": "function", "function": {name, description, parameters}}.
    """
    return TEMPLATE.offer(schemas)

"""The tool-call template that Qwen's models were trained on, as NousResearch's Hermes models were before.

Conversations, traces and rewards are written in it: `vtune.tools.calls` reads and writes its calls.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTemplate:
    """How tools are offered, called and answered."""

    call: str
    """The tag around a call."""
    response: str
    """The tag around a result."""
    offer: Callable[[Sequence[Mapping[str, Any]]], str]
    """(schemas of the tools) -> the end of the system turn, which offers them."""

    @property
    def tags(self) -> tuple[str, ...]:
        """All of its tags, as written."""
        return tuple(tag for name in (self.call, self.response) for tag in (f"<{name}>", f"</{name}>"))


CALL, RESPONSE = "tool_call", "tool_response"


def _offer(schemas: Sequence[Mapping[str, Any]]) -> str:
    """The end of the system turn, character for character as Qwen's template prints it.

    Args:
        schemas: One per tool: {"type": "function", "function": {name, description, parameters}}.
    """
    lines = "".join(f"\n{json.dumps(schema, ensure_ascii=False)}" for schema in schemas)
    return (
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        f"You are provided with function signatures within <tools></tools> XML tags:\n<tools>{lines}\n"
        "</tools>\n\nFor each function call, return a json object with function name and arguments within "
        f"<{CALL}></{CALL}> XML tags:\n<{CALL}>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n'
        f"</{CALL}>"
    )


HERMES = ToolTemplate(call=CALL, response=RESPONSE, offer=_offer)

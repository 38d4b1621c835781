"""How a policy calls tools: exactly as its prompt says, or not at all."""

import json
import re
from collections.abc import Mapping
from typing import Any

_TOOLS = re.compile(r"<tools>\n(.*?)\n</tools>", re.DOTALL)


def offered(prompt: str) -> Mapping[str, Mapping[str, Any]]:
    """The tools with JSON arguments that a prompt describes: name -> descriptions of the arguments."""
    block = _TOOLS.search(prompt)
    functions = [json.loads(line)["function"] for line in block[1].splitlines()] if block else []
    return {function["name"]: function["parameters"]["properties"] for function in functions}


def without_tools(prompt: str) -> str:
    """A prompt without its tool descriptions: the format of a zoom's box is not that of answers."""
    return _TOOLS.sub("", prompt)


def called(prompt: str, name: str, **arguments: object) -> str:
    """A turn with a thought and one call, in the form that the prompt shows.

    Raises:
        AssertionError: If the prompt offers no such tool, describes no such argument, or shows no form.
    """
    assert set(arguments) <= set(offered(prompt)[name]), f"{name} takes no {sorted(arguments)}"
    assert "<think>" in prompt
    assert '{"name": <function-name>, "arguments": <args-json-object>}' in prompt
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<think>I look it up.</think>\n<tool_call>\n{call}\n</tool_call>"


def thousandths(prompt: str, box: tuple[int, int, int, int], size: tuple[int, int]) -> list[float]:
    """A box in pixels, converted for the zoom of a prompt to thousandths of the picture's sides.

    Raises:
        AssertionError: If the prompt asks for another unit.
    """
    assert "from 0 to 1000" in offered(prompt)["image_zoom_in_tool"]["bbox_2d"]["description"]
    return [1000 * side / size[odd % 2] for odd, side in enumerate(box)]


def responses(prompt: str) -> list[str]:
    """The tool responses so far."""
    return re.findall(r"<tool_response>\n(.*?)\n</tool_response>", prompt, re.DOTALL)

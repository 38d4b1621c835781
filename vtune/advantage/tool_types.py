"""Which tools count as one type, so that credit can pass between their calls."""

from collections.abc import Mapping
from dataclasses import dataclass

from vtune.tools import TOOLS
from vtune.tools.similarity import ToolType


@dataclass(frozen=True, slots=True)
class Typed:
    """A type, and the tools that belong to it."""

    type: ToolType
    tools: tuple[str, ...]


def tool_types() -> Mapping[str, Typed]:
    """Name in `credit.tools` -> the type and its tools, including the user's own."""
    found: dict[str, Typed] = {}
    for name, tool in TOOLS.items():
        if tool.credit is not None:
            known = found.get(tool.credit.name)
            found[tool.credit.name] = Typed(tool.credit, (*(known.tools if known else ()), name))
    return found

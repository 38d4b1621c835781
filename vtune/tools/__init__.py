"""What a model may call."""

from typing import Annotated

from pydantic import AfterValidator

from vtune.registry import Parts
from vtune.tools.tool import ToolPart

NONE, INVALID = "none", "invalid"
"""Values of `--tools` for no tool, and of a record for a call of a tool that is not offered."""

TOOLS: Parts[ToolPart] = Parts(
    "tool",
    lambda tool: tool.about,
    ToolPart,
    taken=(NONE, INVALID),
    calls=(
        "async opened(section, record)",
        "check(section) -> None",
        "check_sample(section, sample) -> None",
        "look(image, box, size) -> dict[str, Any]",
    ),
)
"""Name in the data -> tool."""

ToolName = Annotated[str, AfterValidator(TOOLS.known)]

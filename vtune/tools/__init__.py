"""What a model may call."""

from typing import Annotated

from pydantic import AfterValidator

from vtune.parts import Parts
from vtune.tools.tool import ToolPart

TOOLS: Parts[ToolPart] = Parts("tool", lambda tool: tool.about, ToolPart)
"""Name in the data -> tool."""

ToolName = Annotated[str, AfterValidator(TOOLS.known)]

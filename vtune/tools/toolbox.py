"""The tools of a run with JSON schemas: one call in, one observation out."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from vtune.errors import ServiceError
from vtune.tools import TOOLS
from vtune.tools.calls import Asked
from vtune.tools.observation import Observation
from vtune.tools.result_cache import ResultCache
from vtune.tools.tool import Mistake, Scene, Schema, Tool, refused
from vtune.uses import given

Results = ResultCache[Observation]
"""Observations by (group, tool, key)."""


class Toolbox:
    """Runs calls; what tools need to be open, their maker keeps open.

    Args:
        tools: By name.
    """

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = dict(tools)

    def names(self, offered: Sequence[str]) -> tuple[str, ...]:
        """Those of some names that it runs, in their order."""
        return tuple(name for name in offered if name in self._tools)

    def schemas(self, offered: Sequence[str]) -> list[Schema]:
        """How these are described to the policy."""
        return [self._tools[name].schema for name in self.names(offered)]

    async def run(self, asked: Asked, scene: Scene, group: int, results: Results) -> Observation:
        """What comes of a call.

        A call that one of its group has made, or is making, is not made again. The model's mistakes are
        reported to it, with the status `error`; when we fail the status is `infra`, and nothing is reported.

        Args:
            asked: The call.
            scene: What it is about.
            group: Rollouts of one question share it.
            results: Of calls so far.
        """
        if asked.problem:
            return refused(asked.problem)
        tool = self._tools[asked.tool]
        began = time.monotonic()
        try:
            key = (group, asked.tool, tool.key(asked.arguments, scene))
            found = await results.get(key, lambda: tool.run(asked.arguments, scene))
        except Mistake as error:
            return refused(str(error))
        except ServiceError as error:
            seconds = time.monotonic() - began
            return Observation(text="", status="infra", error=str(error), seconds=seconds)
        given(found, Observation, TOOLS.kind, asked.tool)
        return replace(found, seconds=time.monotonic() - began)


def arguments_of(asked: Asked) -> str:
    """The arguments as a trajectory keeps them."""
    return json.dumps(asked.arguments, ensure_ascii=False)

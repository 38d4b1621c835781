"""The tools of a run with JSON schemas: one call in, one observation out."""

import json
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from math import isfinite

from vtune.errors import ServiceError
from vtune.sandbox import ShownCrop
from vtune.schema.box import proper
from vtune.tools import TOOLS
from vtune.tools.calls import Asked
from vtune.tools.observation import IMAGE_MARK, Observation
from vtune.tools.result_cache import ResultCache
from vtune.tools.tool import Mistake, Scene, Schema, Tool, refused
from vtune.uses import broken, given

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
            _check_key(key[-1], asked.tool)
            found = await results.get(key, lambda: tool.run(asked.arguments, scene))
        except Mistake as error:
            return refused(str(error))
        except ServiceError as error:
            seconds = time.monotonic() - began
            return Observation(text="", status="infra", error=str(error), seconds=seconds)
        _check(found, asked.tool, scene)
        return replace(found, seconds=time.monotonic() - began)


def _check_key(key: object, tool: str) -> None:
    """Check that results can be kept under what a tool gave as a key.

    Raises:
        BrokenPart: If a user's own gave what they cannot.
    """
    if not isinstance(key, Hashable):
        error = TypeError(f"`key` gives {type(key).__name__}: give a text")
        raise broken(error, (TOOLS.kind, tool)) or error


def _check(found: object, tool: str, scene: Scene) -> None:
    """Check that a conversation and its record can hold what a tool gave.

    Raises:
        BrokenPart: If a user's own gave what they cannot.
    """
    seen = given(found, Observation, TOOLS.kind, tool)
    wrongs = [_shown(seen), *(_region(crop, seen, scene) for crop in seen.crops)]
    if wrong := next(filter(None, wrongs), ""):
        error = ValueError(wrong)
        raise broken(error, (TOOLS.kind, tool)) or error


def _shown(seen: Observation) -> str:
    """What is wrong with what the policy is to be shown; empty: nothing."""
    if not isinstance(seen.text, str) or not all(isinstance(data, bytes) for data in seen.images):
        return "an observation has a text, and pictures as encoded bytes"
    marks, count = seen.text.count(IMAGE_MARK), len(seen.images)
    if marks == count:
        return ""
    return f"its text has {marks} {IMAGE_MARK} for {count} picture(s); `inert` takes marks out of found text"


def _region(crop: ShownCrop, seen: Observation, scene: Scene) -> str:
    """What is wrong with a region that a call says to show; empty: nothing."""
    known, count = max(len(scene.images), len(scene.views)), len(seen.images)
    if not 0 <= crop.image < known:
        return f"a crop has `image` {crop.image}, and the conversation has {known} picture(s), from 0"
    if crop.shown is not None and not 0 <= crop.shown < count:
        return f"a crop has `shown` {crop.shown}, and the call returned {count} picture(s), from 0"
    if len(crop.bbox) != 4 or not proper(crop.bbox):
        return f"a crop has `bbox` {list(crop.bbox)}: give (x0, y0, x1, y1), finite and with an inside"
    matrix = crop.matrix
    if matrix is not None and (len(matrix) not in (6, 9) or not all(map(isfinite, matrix))):
        return f"a crop has `matrix` {list(matrix)}: give six or nine finite numbers"
    return ""


def arguments_of(asked: Asked) -> str:
    """The arguments as a trajectory keeps them."""
    return json.dumps(asked.arguments, ensure_ascii=False)

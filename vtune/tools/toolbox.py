"""The tools of a run with JSON schemas: one call in, one observation out."""

import asyncio
import inspect
import json
import time
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

from vtune.errors import ServiceError
from vtune.tools import TOOLS
from vtune.tools.calls import Asked
from vtune.tools.observation import Observation, encodable, tidy, unfit
from vtune.tools.result_cache import ResultCache
from vtune.tools.tool import Mistake, Scene, Schema, Tool, refused
from vtune.uses import awaited, broken, defined, given, ill_made, uncancelled

Results = ResultCache[Observation]
"""Observations by (group, tool, key)."""
ENCODED = "return PNG or JPEG bytes; raise ServiceError where a service that it asks gave none"
"""The next step if a tool returned bytes that are not a picture."""


class Toolbox:
    """Runs calls; whoever creates it keeps open what its tools need.

    Args:
        tools: Tools by name.
    """

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = dict(tools)

    def names(self, offered: Sequence[str]) -> tuple[str, ...]:
        """Those of the given names that it can run, in their order."""
        return tuple(name for name in offered if name in self._tools)

    def schemas(self, offered: Sequence[str]) -> list[Schema]:
        """Their descriptions for the policy."""
        return [self._tools[name].schema for name in self.names(offered)]

    def no_picture(self, name: str, why: str) -> Exception:
        """The error for a tool that returned bytes that are not a picture; BrokenPart for a user's own."""
        wrong = ValueError(f"it returned no picture: {why}")
        return ill_made((TOOLS.kind, name), wrong, ENCODED, defined(self._tools[name].run))

    async def run(self, asked: Asked, scene: Scene, group: int, results: Results) -> Observation:
        """The observation from a call.

        A call that the same group has already made, or is making, is not repeated. The model's mistakes are
        reported to it, with the status `error`; if the failure is ours, the status is `infra` and nothing is
        reported.

        Args:
            asked: The call.
            scene: Its context.
            group: Shared by rollouts of one question.
            results: Results so far.
        """
        if asked.problem:
            return refused(asked.problem)
        tool = self._tools[asked.tool]
        began = time.monotonic()
        # A copy, because the record and credit transfer keep what the policy wrote.
        arguments = json.loads(arguments_of(asked))
        try:
            key = (group, asked.tool, tool.key(arguments, scene))
            _check_key(key[-1], asked.tool)
            found = await results.get(key, lambda: _run(asked.tool, tool, arguments, scene))
        except Mistake as error:
            return refused(str(error))
        except ServiceError as error:
            seconds = time.monotonic() - began
            return Observation(text="", status="infra", error=encodable(str(error)), seconds=seconds)
        return replace(_checked(found, asked.tool, tool, scene), seconds=time.monotonic() - began)


def opening(name: str, manager: object) -> AbstractAsyncContextManager[Tool]:
    """Check what a tool's `opened` returned; it is entered for as long as the tool is needed.

    Raises:
        BrokenPart: If a user's own returned something else, e.g. because `async` or the decorator is missing.
    """
    within = getattr(manager, "gen", None)  # of `asynccontextmanager`, which accepts any function
    if isinstance(manager, AbstractAsyncContextManager) and (within is None or hasattr(within, "__anext__")):
        return manager
    if inspect.iscoroutine(found := manager if within is None else within):
        found.close()
    what = f"`opened` returns {type(found).__name__}, not an asynchronous context manager"
    fix = "write `@asynccontextmanager` above `async def opened(section, record)`, and `yield` the tool in it"
    raise ill_made((TOOLS.kind, name), what, fix)


async def _run(name: str, tool: Tool, arguments: Mapping[str, Any], scene: Scene) -> Observation:
    try:
        found: Observation = await awaited((TOOLS.kind, name), tool.run, arguments, scene)
        return found
    except asyncio.CancelledError as error:
        if (wrong := uncancelled(error)) is None:
            raise
        raise broken(wrong, (TOOLS.kind, name)) or wrong from error


def _check_key(key: object, tool: str) -> None:
    """Check that what a tool returned can be used as a cache key.

    Raises:
        BrokenPart: If a user's own tool returned something that cannot.
    """
    if not isinstance(key, Hashable):
        error = TypeError(f"`key` returns {type(key).__name__}: return a text")
        raise broken(error, (TOOLS.kind, tool)) or error


def _checked(found: object, name: str, tool: Tool, scene: Scene) -> Observation:
    """A tool's result in the form that a conversation and its record can hold.

    Raises:
        BrokenPart: If a user's own tool returned something that they cannot hold.
    """
    seen = given(found, Observation, TOOLS.kind, name, tool.run)
    if wrong := unfit(seen, _pictures(scene)):
        raise ill_made((TOOLS.kind, name), ValueError(wrong), "correct the line", defined(tool.run))
    return tidy(seen)


def _pictures(scene: Scene) -> list[bytes | None]:
    """The conversation's pictures by index; None where only a region of it is known."""
    whole = dict(enumerate(scene.images)) | {view.image: view.data for view in scene.views}
    return [whole.get(number) for number in range(max(len(scene.images), len(scene.views)))]


def arguments_of(asked: Asked) -> str:
    """The arguments as stored in a trajectory."""
    return json.dumps(asked.arguments, ensure_ascii=False)

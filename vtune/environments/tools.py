"""Our environment: the tools that a sample offers. Code runs in a sandbox session; the others take JSON."""

import asyncio
import io
import json
from collections.abc import Sequence
from dataclasses import replace

from PIL import Image

from vtune.environments import ENVIRONMENTS
from vtune.environments.environment import Act, EnvironmentPart, Episode, Start, Trial, Turn
from vtune.environments.origins import Origins
from vtune.errors import BrokenPart, DataError, ServiceError
from vtune.sandbox import ShownCrop
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Sample
from vtune.tools import TOOLS, zoom
from vtune.tools.calls import CLOSE, OPEN, Asked, read_calls, tool_response
from vtune.tools.observation import Observation, sandbox_output
from vtune.tools.python import CODE, run_python
from vtune.tools.python import NAME as PYTHON
from vtune.tools.recoverable_session import RecoverableSession
from vtune.tools.tool import Scene, View
from vtune.tools.toolbox import arguments_of
from vtune.verifiers import exact
from vtune.verifiers.tags import tagged

Opening = asyncio.Task[RecoverableSession]
"""A session that is being prepared while the first turn is generated."""


class ToolEpisode(Episode):
    """One trajectory's tools: its session, and the pictures that later calls may use.

    Args:
        start: The sample's `tools` are offered, as far as the run has them.
        opening: The session; None if the sample does not offer `python`.
    """

    def __init__(self, start: Start, opening: Opening | None) -> None:
        self._start = start
        self._opening = opening
        self._offered = start.services.tools.names(start.sample.tools)
        self._views: list[View] = []
        self._latest: Sequence[Act] = ()
        """Acts of the previous turn, whose pictures are not among the views yet."""
        self._cut: Sequence[Sequence[ShownCrop]] = ()
        """The regions of each of them, as given by the tool."""
        self._origins = Origins()
        if opening is not None:
            self.stop = (f"</{CODE}>",)
            self.sandbox = start.services.sandbox.tier

    async def observe(self, turn: Turn) -> Sequence[Act] | None:
        """Run the code of a turn, or all of its calls concurrently; a turn without any ends the conversation.

        On the last turn nothing runs, since the policy would not see the result.
        """
        code = tagged(turn.text, CODE) if self._opening is not None and turn.stopped else None
        # A turn with an answer makes no more calls.
        asks = bool(self._offered) and code is None and "</answer>" not in turn.text
        asked = read_calls(turn.text, self._offered) if asks else []
        if code is None and not asked:
            return None
        if turn.last:
            return []
        self._look_at(turn.pictures)
        if code is not None and self._opening is not None:
            self._latest, self._cut = [await self._run(code, await self._opening)], [()]
        else:
            self._latest = await self._ask(asked)
        return self._latest

    async def close(self) -> None:
        """Close the session in the background."""
        if self._opening is not None:
            self._start.services.later(_end(self._opening))

    async def _run(self, code: str, session: RecoverableSession) -> Act:
        seen = await self._readable(await run_python(session, code))
        if seen.status == "infra":
            raise ServiceError(f"the sandbox failed: {seen.error}")
        return Act(seen, PYTHON, json.dumps({"code": code}))

    async def _ask(self, asked: Sequence[Asked]) -> list[Act]:
        start, services = self._start, self._start.services
        scene = Scene(start.sample, start.images, tuple(self._views))
        found = await asyncio.gather(
            *(services.tools.run(one, scene, start.group, services.results) for one in asked)
        )
        acts, self._cut = [], [one.crops for one in found]
        for one, answered in zip(asked, found, strict=True):
            seen = await self._usable(one.tool, answered)
            crops = self._origins.placed(seen.crops, seen.images)
            framed = replace(seen, text=tool_response(seen.text), crops=crops)
            acts.append(Act(framed, one.tool, arguments_of(one), one.end))
        return acts

    def _look_at(self, pictures: Sequence[bytes]) -> None:
        """Add the latest turn's pictures to the views; a zoom's crop is a region of its source picture."""
        size = self._start.services.pictures.shown_size
        if not self._views:
            own = pictures[: len(self._start.images)]
            self._views = [View(data, number, None, size(data)) for number, data in enumerate(own)]
        for act, cut in zip(self._latest, self._cut, strict=True):
            if act.tool != PYTHON:
                self._origins.take(len(self._views), act.seen.crops, act.seen.images)
            crops = cut if act.tool == zoom.NAME else ()
            regions = {crop.shown: crop for crop in crops if crop.shown is not None}
            for place in range(len(act.seen.images)):
                number = len(self._views)
                data = pictures[number]
                crop = regions.get(place)
                if crop is not None:
                    whole = self._views[crop.image].data
                    self._views.append(View(whole, crop.image, crop.bbox, size(data)))
                else:
                    self._views.append(View(data, number, None, size(data)))

    async def _usable(self, tool: str, seen: Observation) -> Observation:
        """The observation, or a failure of ours instead if a tool's picture cannot be decoded.

        Raises:
            BrokenPart: If the tool is a user's own.
        """
        try:
            await self._start.services.pictures.load(seen.images)
        except DataError as error:
            if isinstance(broken := self._start.services.tools.no_picture(tool, error.what), BrokenPart):
                raise broken from broken.__cause__
            why = f"tool `{tool}` returned no picture: {error.what}"
            return Observation(text="", status="infra", error=why)
        return seen

    async def _readable(self, seen: Observation) -> Observation:
        """The observation, or an error instead if the code forged a picture that cannot be decoded."""
        try:
            await self._start.services.pictures.load(seen.images)
        except DataError as error:
            text = sandbox_output(error.what)
            return replace(seen, status="error", error=error.what, text=text, images=(), crops=())
        return seen


async def open_tools(start: Start) -> ToolEpisode:
    """The tools of a sample; a session starts in the background, and is waited for when code is to run."""
    if PYTHON not in start.sample.tools:
        return ToolEpisode(start, None)
    services = start.services
    opening = asyncio.create_task(
        RecoverableSession.open(services.sandbox, start.images, seed=start.seed, lost=services.lost)
    )
    try:
        # Let it start now, not when this conversation first waits.
        await asyncio.sleep(0)
        return ToolEpisode(start, opening)
    except BaseException:  # nobody else knows about the session
        services.later(_end(opening))
        raise


async def _end(opening: Opening) -> None:
    """Close a session, even one that is not open yet."""
    opening.cancel()
    try:
        session = await opening
    except (ServiceError, DataError, asyncio.CancelledError):
        # It was never opened; if that mattered, it has been reported.
        return
    await session.close()


def _trial() -> Trial:
    """A question whose picture is examined by code, and by a call."""
    drawn = io.BytesIO()
    Image.radial_gradient("L").resize((64, 64)).save(drawn, "PNG")
    sample = Sample(
        id="tools/1",
        source="tools",
        prompt=(Message("user", f"{IMAGE}What is in the middle?"),),
        images=(Picture(drawn.getvalue()),),
        ground_truth="nothing",
        verifier=exact.NAME,
        tools=(PYTHON, zoom.NAME),
    )
    call = {"name": zoom.NAME, "arguments": TOOLS[zoom.NAME].example}
    turns = (
        f'<think>Let me look.<{CODE}>image.crop((8, 8, 40, 40)).save("look.png")</{CODE}>',
        f"Closer.</think>{OPEN}{json.dumps(call)}{CLOSE}",
        "<think>It is dark.</think><answer>nothing</answer>",
    )
    return Trial(sample, turns)


ENVIRONMENTS.add(
    "tools",
    EnvironmentPart("The tools that the sample offers.", open=open_tools, trial=_trial(), recorded_as=PYTHON),
)

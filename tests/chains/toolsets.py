"""A policy that uses each tool that its prompt mentions once, correctly, and then answers."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.chains.calling import called, thousandths
from vtune.data.traces import LEGIBLE, code_trace, regions
from vtune.reward.evidence import Judges, score_call
from vtune.reward.recipe import EvidenceLevels
from vtune.reward.score import with_flags
from vtune.schema.message import Message, Picture
from vtune.schema.pixels import size_of
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Call, Trajectory
from vtune.tools import ToolName, image_search, text_search, zoom
from vtune.tools.calls import read_calls, tool_response
from vtune.tools.observation import recorded
from vtune.tools.passage import Passage
from vtune.tools.tool import Scene, View
from vtune.tools.toolbox import Results, Toolbox, arguments_of

ZOOM: ToolName = "image_zoom_in_tool"
TEXT: ToolName = "text_search_tool"
IMAGE: ToolName = "image_search_tool"
TOOL_SETS: Mapping[str, tuple[ToolName, ...]] = {
    "none": (),
    "python": ("python",),
    "zoom": (ZOOM,),
    "text search": (TEXT,),
    "image search": (IMAGE,),
    "both searches": (TEXT, IMAGE),  # MMSearch-R1
    "zoom and searches": (ZOOM, TEXT, IMAGE),  # SenseNova-MARS: rl/credit-search-*
    "python and zoom": ("python", ZOOM),
    "all": ("python", ZOOM, TEXT, IMAGE),
}
LOOKS = ("python", ZOOM)
"""Tools that show a part of a picture, which is rewarded."""


class Shelf:
    """A search index with one passage."""

    async def search(self, query: str, top_k: int) -> list[Passage]:
        return [Passage(id="1", title="Signs", text="What is known about signs.")]

    async def aclose(self) -> None:
        """Does nothing: nothing is open."""


def toolbox() -> Toolbox:
    """The real tools, with an index of one passage and cached image searches."""
    return Toolbox(
        {
            ZOOM: zoom.Zoom(zoom.ZoomRecipe(space="relative_1000", min_side=LEGIBLE)),
            TEXT: text_search.TextSearch(Shelf(), top_k=3, max_chars=1000),
            IMAGE: image_search.ImageSearch(image_search.Replayed(None), top_k=5, max_chars=1000, show=False),
        }
    )


def searchable(sample: Sample) -> Sample:
    """The sample with what tools need: a box in its first picture, and a stored image search."""
    extra = dict(sample.extra) | {image_search.TITLES: ["A sign"]}
    if not sample.images:
        return replace(sample, extra=extra)
    width, height = size_of(sample.images[0].data or b"")
    side = max(0.2 * min(width, height), LEGIBLE + 2.0)
    x, y = 0.25 * width, 0.17 * height
    return replace(sample, extra=extra, evidence=(Evidence("", 0, (x, y, x + side, y + side)),))


@dataclass(frozen=True)
class Step:
    """A call, the turn in which the policy made it, and the response."""

    said: str
    told: str
    call: Call
    images: tuple[Picture, ...]
    score: float
    """The score of the call, by the boxes."""


@dataclass
class Player:
    """Plays conversations; each tool runs once per picture, and the result is reused."""

    levels: EvidenceLevels
    tools: Toolbox = field(default_factory=toolbox)
    known: dict[tuple[str, str], Step] = field(default_factory=dict)

    def plan(self, sample: Sample) -> list[ToolName]:
        """The tools that a good policy calls: all it has, except that one look at a place is enough."""
        looks = [tool for tool in sample.tools if tool in LOOKS and sample.images][:1]
        return [
            tool
            for tool in sample.tools
            if tool in looks or tool == TEXT or (tool == IMAGE and sample.images)
        ]

    def step(self, sample: Sample, tool: ToolName, prompt: str) -> Step:
        """One call of a tool, made as the prompt says."""
        data = b"".join(picture.data or b"" for picture in sample.images)
        key = (tool, hashlib.sha256(data).hexdigest())
        if key not in self.known:
            self.known[key] = self._run(sample, tool, prompt)
        return self.known[key]

    def _run(self, sample: Sample, tool: ToolName, prompt: str) -> Step:
        if tool == "python":
            trace = code_trace(sample, (), regions(sample), final="", answer=None)
            said, told, _ = (turn.content for turn in trace.messages)
            (call,), images = trace.calls, trace.images[len(sample.images) :]
        else:
            said = self._asked(sample, tool, prompt)
            (asked,) = read_calls(said, sample.tools)
            data = tuple(picture.data or b"" for picture in sample.images)
            views = [View(one, number, None, size_of(one)) for number, one in enumerate(data)]
            seen = asyncio.run(self.tools.run(asked, Scene(sample, data, views), 0, Results()))
            told, first = tool_response(seen.text), len(data)
            images = tuple(Picture(data=one, origin="call:0") for one in seen.images)
            call = Call(
                tool=tool,
                arguments=arguments_of(asked),
                status=seen.status,
                error=seen.error,
                output=seen.output,
                images=tuple(range(first, first + len(images))),
                crops=recorded(seen.crops, first),
            )
        return Step(said, told, call, images, self._score(sample, call, images))

    def _asked(self, sample: Sample, tool: ToolName, prompt: str) -> str:
        if tool == TEXT:
            return called(prompt, tool, query="signs")
        if tool == IMAGE:
            return called(prompt, tool)
        ((_, box, _),) = regions(sample)
        size = size_of(sample.images[0].data or b"")
        return called(prompt, tool, bbox_2d=thousandths(prompt, box, size))

    def _score(self, sample: Sample, call: Call, images: tuple[Picture, ...]) -> float:
        alone = Trajectory(
            sample_id=sample.id,
            source=sample.source,
            messages=(),
            images=(*sample.images, *images),
            calls=(call,),
        )
        flagged = with_flags(alone, self.levels, sample.evidence)
        assert flagged.calls[0].flags == (), flagged.calls[0].flags
        return asyncio.run(score_call(sample, flagged, 0, Judges(self.levels, None))).score

    def play(
        self, sample: Sample, turns: Sequence[Message], final: str, prompt: str, *, one_pair: bool = False
    ) -> tuple[list[Message], list[Step]]:
        """A whole conversation.

        Args:
            sample: The question; it offers the tools.
            turns: The turns before the policy's first.
            final: The policy's last turn.
            prompt: The text that explains how to make calls.
            one_pair: Whether all code is in one pair of think tags that the last turn closes (CodeV,
                template 13.1).
        """
        steps = [self.step(sample, tool, prompt) for tool in self.plan(sample)]
        messages = list(turns)
        for step in steps:
            messages += [Message("assistant", step.said), Message("user", step.told)]
        if one_pair and steps and steps[-1].call.tool == "python":
            final = final.removeprefix("<think>")
        return [*messages, Message("assistant", final)], steps


def tells_of_code(prompt: str) -> bool:
    """Whether a prompt explains how to write code and what it returns."""
    return "<code>\n```python" in prompt and "<sandbox_output>" in prompt


def as_published(messages: Sequence[Message]) -> list[Message]:
    """The conversation of a policy that learnt the tag `<thinking>` (SenseNova-MARS)."""
    return [
        replace(turn, content=turn.content.replace("think>", "thinking>"))
        if turn.role == "assistant"
        else turn
        for turn in messages
    ]

"""Trail questions: which town the roads in a seal's colour lead to, and traces that find out.

Finding out takes an image search (whose banner is this?), a zoom (what colour is the seal?), and one text
search per road. Tool outputs in traces equal those of a run in this world; a test checks this.

Cold-start traces mix habits, as distilled ones do: half of them zoom in on the plate, the others zoom in
elsewhere or not at all, and guess the colour. Some stop one road too early, some repeat a call. A policy
trained on them has every good and bad habit, so that reinforcement learning has something to select from; and
a wrong answer often follows correct calls, which is what credit transfer is about.
"""

import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vtune.data.drawing import Pixels, blank
from vtune.data.trail_world import (
    CORNERS,
    MOST_ROADS,
    SEALS,
    SIDE,
    Half,
    Town,
    World,
    picture,
    plate_box,
    road_text,
)
from vtune.schema.decode import png_of
from vtune.schema.message import Message, Picture
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Call, Crop, Trajectory
from vtune.tools import image_search as image_search_tool
from vtune.tools import text_search as text_search_tool
from vtune.tools import zoom as zoom_tool
from vtune.tools.calls import CLOSE, OPEN, tool_response
from vtune.verifiers import exact

Split = Literal["train", "traces", "heldout"]

TOOLS = (image_search_tool.NAME, zoom_tool.NAME, text_search_tool.NAME)

CAREFUL, ELSEWHERE = 0.5, 0.25
"""Shares of traces that zoom in on the plate, and on a corner without one; the rest do not zoom (ours)."""
SHORT = 0.1
"""Share of traces that stop one road too early, if there is more than one road (ours)."""
TWICE = 0.1
"""Share of searches that are repeated (ours)."""

_TAG = re.compile(r"</?\w+>")


@dataclass(frozen=True, slots=True)
class Trail:
    """A question, and where its roads lead."""

    start: Town
    colour: str
    cell: int
    """Cell with the plate."""
    roads: int
    towns: tuple[str, ...]
    """Names of the towns on the way, including the start."""
    data: bytes
    """The picture, as PNG."""

    @property
    def question(self) -> str:
        """The question."""
        return f"Roads of the seal's colour to take from here: {self.roads}. Which town is reached?"


def trails(world: World, *, seed: int, split: Split, drawn: bool = True) -> Iterator[Trail]:
    """Endless trails; one, two and three roads alternating.

    Args:
        world: The world that they lead through.
        seed: The same seed gives the same trails.
        split: `heldout` begins in held-out towns, the others in known ones; no two splits share a picture.
        drawn: Whether to draw the pictures; if not, all share one blank picture.
    """
    return (trail for trail, _ in _drawn(world, seed=seed, split=split, drawn=drawn))


def _drawn(world: World, *, seed: int, split: Split, drawn: bool = True) -> Iterator[tuple[Trail, Pixels]]:
    """Trails with the pixels of their pictures."""
    nothing = None if drawn else blank(SIDE)
    encoded = None if nothing is None else png_of(nothing)
    rng = random.Random(f"trails {seed} {split}")
    half: Half = "heldout" if split == "heldout" else "known"
    while True:
        for roads in range(1, MOST_ROADS + 1):
            start, colour, cell = rng.choice(world.towns[half]), rng.choice(list(SEALS)), rng.choice(CORNERS)
            towns = tuple(world.follow(start.name, colour, roads))
            # Always drawn, as it consumes random numbers; most of the time goes into encoding anyway.
            pixels = picture(start, colour, cell, rng)
            shown = pixels if nothing is None else nothing
            yield Trail(start, colour, cell, roads, towns, encoded or png_of(pixels)), shown


def samples(world: World, count: int, *, seed: int, split: Split) -> Iterator[Sample]:
    """`count` trails as samples."""
    stream = trails(world, seed=seed, split=split)
    for number in range(count):
        yield _sample(next(stream), f"trails/{seed}/{split}/{number:06d}")


def traces(world: World, count: int, *, seed: int, drawn: bool = True) -> Iterator[Trajectory]:
    """`count` cold-start traces of mixed habits over their own pictures; blank pictures unless `drawn`."""
    stream = _drawn(world, seed=seed, split="traces", drawn=drawn)
    rng = random.Random(f"habits {seed}")
    for number in range(count):
        trail, pixels = next(stream)
        trace = _Growing(_sample(trail, f"trails/{seed}/traces/{number:06d}"), pixels)
        yield _trace(trace, trail, world, rng)


def corpus(world: World, *, seed: int, count: int = 600) -> Iterator[str]:
    """Texts of traces, for training the tiny model's tokenizer, without tags, which are separate tokens."""
    for trace in traces(world, count, seed=seed, drawn=False):
        for message in trace.messages:
            yield _TAG.sub("\n", message.content)


def region(cell: int) -> list[int]:
    """The plate of a cell, in thousandths of the picture."""
    return [round(edge * 1000 / SIDE) for edge in plate_box(cell)]


def query(colour: str, town: str) -> str:
    """The query that finds where a road leads."""
    return f"{colour} road of {town}"


class _Growing:
    """A trace under construction."""

    def __init__(self, sample: Sample, pixels: Pixels) -> None:
        self.sample = sample
        self._pixels = pixels
        self.messages = list(sample.prompt)
        self.images = list(sample.images)
        self.calls: list[Call] = []

    def call(
        self,
        thought: str,
        tool: str,
        arguments: Mapping[str, Any],
        output: str,
        crop: tuple[int, int, int, int] | None = None,
    ) -> None:
        """Add a thought, a call, and what came back; `crop` cuts out part of the picture."""
        asked = json.dumps({"name": tool, "arguments": arguments}, separators=(",", ":"))
        said = f"<think>{thought}</think>{OPEN}{asked}{CLOSE}"
        self.messages.append(Message("assistant", said))
        shown: tuple[int, ...] = ()
        crops: tuple[Crop, ...] = ()
        if crop is not None:
            shown = (len(self.images),)
            x0, y0, x1, y1 = crop
            bbox = (float(x0), float(y0), float(x1), float(y1))
            crops = (Crop(image=0, bbox=bbox, shown=shown[0]),)
            self.images.append(
                Picture(data=png_of(self._pixels[y0:y1, x0:x1]), origin=f"call:{len(self.calls)}")
            )
        self.messages.append(Message("user", tool_response(output), shown))
        self.calls.append(
            Call(
                tool=tool,
                arguments=json.dumps(arguments),
                status="ok",
                output=output,
                images=shown,
                crops=crops,
            )
        )

    def answer(self, thought: str, answer: str) -> None:
        """Add the final answer."""
        said = f"<think>{thought}</think>\n<answer>{answer}</answer>"
        self.messages.append(Message("assistant", said))


def _trace(trace: _Growing, trail: Trail, world: World, rng: random.Random) -> Trajectory:
    image_search, zoom, text_search = TOOLS

    def times() -> range:
        return range(2 if rng.random() < TWICE else 1)

    for _ in times():
        trace.call("Whose banner?", image_search, {}, f"1. {trail.start.name}")
    luck = rng.random()
    colour = trail.colour
    if luck < CAREFUL + ELSEWHERE:
        elsewhere = rng.choice([cell for cell in CORNERS if cell != trail.cell])
        cell = trail.cell if luck < CAREFUL else elsewhere
        trace.call(
            "Which seal?",
            zoom,
            {"bbox_2d": region(cell)},
            "Here is the zoomed image:\n<image>",
            plate_box(cell),
        )
    if luck >= CAREFUL:
        colour = rng.choice(list(SEALS))
    short = trail.roads > 1 and rng.random() < SHORT
    town = trail.start.name
    for road in range(1, trail.roads + 1 - short):
        there = world.roads[town, colour]
        for _ in times():
            trace.call(
                f"Road {road} of {trail.roads}.",
                text_search,
                {"query": query(colour, town)},
                f"1. {town}\n{road_text(town, colour, there)}",
            )
        town = there
    trace.answer("Arrived.", town)
    return Trajectory(
        sample_id=trace.sample.id,
        source=trace.sample.source,
        messages=tuple(trace.messages),
        images=tuple(trace.images),
        calls=tuple(trace.calls),
        answer=town,
    )


def _sample(trail: Trail, identity: str) -> Sample:
    x0, y0, x1, y1 = map(float, plate_box(trail.cell))
    return Sample(
        id=identity,
        source=f"trails_{trail.roads}",
        prompt=(Message("user", f"<image>{trail.question}", (0,)),),
        images=(Picture(data=trail.data),),
        ability="search",
        ground_truth=trail.towns[-1],
        answer=trail.towns[-1],
        verifier=exact.NAME,
        accuracy_ratio=1.0,
        format_ratio=0.1,
        tools=TOOLS,
        evidence=(Evidence("seal", 0, (x0, y0, x1, y1)),),
        extra={"documents": [trail.towns[-2]]},  # the article that says where the last road leads
    )

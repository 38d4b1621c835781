"""What a tool promises."""

import asyncio
import io
import json
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from vtune.errors import DataError, RunFailed
from vtune.parts import OURS
from vtune.runs.agent.tools import NoSettings
from vtune.runs.parts.checks.check import (
    SIDES,
    Broken,
    Check,
    gradient,
    in_time,
    question,
    raised,
    section_of,
    tried,
)
from vtune.runs.parts.checks.looks import TEXTURED, check_shown, counted, shown_crops, textured
from vtune.sandbox import Sandbox
from vtune.schema.pixels import decode_picture, size_of
from vtune.schema.sample import Sample
from vtune.sections import Strict
from vtune.tools import TOOLS
from vtune.tools.calls import Asked
from vtune.tools.observation import IMAGE_MARK, Observation
from vtune.tools.python import CODE, run_python
from vtune.tools.recoverable_session import RecoverableSession
from vtune.tools.result_cache import ResultCache
from vtune.tools.tool import Scene, Tool, ToolPart, View
from vtune.tools.toolbox import Toolbox, opening

ODD: tuple[Any, ...] = (None, "", "odd", -1, 0, 10**7, 0.5, True, [], ["odd"], {}, {"odd": [1]})
"""Values that a model may write for any argument."""

REGIONS = ((40.0, 24.0, 104.0, 72.0), (176.0, 120.0, 224.0, 184.0), (160.0, 16.0, 240.0, 64.0))
"""Regions of a textured picture, xyxy in pixels, far from each other, that `look` is asked for."""

EXAMPLE = "correct `example`, or `run`"

LOOK = "let `look` give the arguments of the call that shows the middle of the region at least"

MODES = {
    "grey": "L",
    "16-bit": "I;16",
    "transparent": "RGBA",
    "CMYK": "CMYK",
    "black and white": "1",
    "of a palette": "P",
}
"""Kinds of pictures in data, besides plain RGB -> Pillow's mode."""

SEED = 1
"""Seed of the sessions that code runs in."""

SLOW = "do less, or give up in time: the policy waits"
SLOWEST_TOOL = 10.0
"""Seconds per call at most, ours."""


def check_tool(name: str) -> list[Check]:
    """It opens, answers the call of its example, and tells the model about its mistakes."""
    seconds: list[float] = []

    def called(arguments: Mapping[str, Any] | None) -> Observation:
        if arguments is None:
            raise Broken(
                "the tool has no example", "give ToolPart an `example`: arguments that any picture allows"
            )
        (found,) = asyncio.run(_called(name, arguments))
        seconds.append(found.seconds)
        return found

    def answers() -> str:
        found = called(TOOLS[name].example)
        if found.status != "ok":
            raise Broken(f"the call of the example ends as {found.status}: {found.error}", EXAMPLE)
        marks = found.text.count(IMAGE_MARK)
        if marks != len(found.images):
            raise Broken(
                f"the returned text has {marks} {IMAGE_MARK} for {len(found.images)} picture(s)",
                "give one mark per picture",
            )
        shown = ", ".join("{}x{}".format(*size_of(image)) for image in found.images)
        return f"{len(found.text)} characters" + (f", pictures {shown}" if shown else "")

    def refuses() -> str:
        found = called(_wrong(name))
        if found.status != "error":
            raise Broken(f"an unknown argument ends as {found.status}", "raise Mistake (see `check_names`)")
        return found.error

    def survives() -> str:
        example = TOOLS[name].example or {}
        asked = [{**example, key: value} for key in example for value in (*ODD, *_as_floats(example[key]))]
        for arguments, found in zip(asked, asyncio.run(_called(name, *asked)), strict=True):
            if found.status not in ("ok", "error"):
                raise Broken(f"{json.dumps(arguments)} ends as {found.status}", "raise Mistake")
        return f"{len(asked)} calls with odd values"

    def fast() -> str:
        if not seconds:
            raise Broken("no call was answered", "correct what is broken above")
        return in_time(max(seconds), SLOWEST_TOOL, "a call", SLOW)

    looking = [tried("`look` asks for the region", lambda: _looks_there(name))] if TOOLS[name].look else []
    return [
        tried("the tool opens and answers a call", answers),
        tried("bad arguments are the model's mistake", refuses),
        tried("odd values are the model's mistake", survives),
        tried("the same call gives the same", lambda: _repeats(name)),
        tried("the sample is not changed", lambda: _leaves(name)),
        tried("other kinds of pictures are accepted", lambda: _takes(name)),
        tried("pictures show the stated regions", lambda: _shows(name)),
        *looking,
        tried("fast enough", fast),
    ]


def _wrong(name: str) -> Mapping[str, Any]:
    """Arguments that are invalid for any call; for code, code that cannot run."""
    if TOOLS[name].opened is None:
        return dict.fromkeys(TOOLS[name].example or {}, "no such name")
    return {"no such argument": 1}


def _leaves(name: str) -> str:
    """The rollouts of a group share the sample, and the reward reads it."""
    sample = question()
    asyncio.run(_called(name, TOOLS[name].example or {}, sample=sample))
    if sample != question():
        raise Broken("a call changed the sample", "copy what you change")
    return "after a call"


def _takes(name: str) -> str:
    """Call it on pictures in other modes: an exception would end the run."""
    example = TOOLS[name].example or {}
    (plain,) = asyncio.run(_called(name, example))
    if plain.status != "ok":
        raise Broken(f"the call of the example ends as {plain.status}: {plain.error}", EXAMPLE)
    for kind, mode in MODES.items():
        fix = 'take `.convert("RGB")` of the picture'
        try:
            (found,) = asyncio.run(_called(name, example, picture=_of_mode(mode)))
        except Broken as broken:
            raise Broken(f"of a picture that is {kind}, {broken.what}", fix) from broken.__cause__
        if found.status != "ok":
            raise Broken(f"a picture that is {kind} ends as {found.status}: {found.error}", fix)
    return ", ".join(MODES)


def _of_mode(mode: str) -> bytes:
    plain = decode_picture(gradient())
    picture = plain.convert("L").convert(mode) if mode == "I;16" else plain.convert(mode)
    if mode == "RGBA":
        picture.putalpha(plain.convert("L"))
    out = io.BytesIO()
    picture.save(out, "JPEG" if mode == "CMYK" else "PNG")
    return out.getvalue()


def _repeats(name: str) -> str:
    example = TOOLS[name].example or {}
    others = [{**example, key: value} for key in example for value in ODD]
    first, *_, last = asyncio.run(_called(name, example, *others, example))
    if replace(first, seconds=0.0) != replace(last, seconds=0.0):
        raise Broken(
            "the call of the example gives a different result after other calls",
            "keep nothing between calls: a group makes the same call once, and shares its result",
        )
    return f"twice, {len(others)} others between"


def _shows(name: str) -> str:
    """Compare every picture with the region that the call says it shows."""
    data = textured()
    (found,) = asyncio.run(_called(name, TOOLS[name].example or {}, picture=data, sides=TEXTURED))
    if found.status != "ok":
        raise Broken(
            f"the call of the example ends as {found.status} on another picture: {found.error}",
            EXAMPLE,
        )
    unpaid = check_shown([data], found)
    return counted(len(shown_crops(found)), unpaid)


def _looks_there(name: str) -> str:
    """Whether `look` asks for the region that it is given: traces teach a policy to look this way."""
    look, data = TOOLS[name].look, textured()
    assert look is not None
    asked = [look(0, region, TEXTURED) for region in REGIONS]
    answered = set()
    for region, arguments, found in zip(
        REGIONS, asked, asyncio.run(_called(name, *asked, picture=data, sides=TEXTURED)), strict=True
    ):
        call = f"the call of `look` for {list(region)}, {json.dumps(arguments)},"
        if found.status != "ok":
            raise Broken(f"{call} ends as {found.status}: {found.error}", LOOK)
        check_shown([data], found)
        x, y = (region[0] + region[2]) / 2, (region[1] + region[3]) / 2
        boxes = [crop.bbox for crop, _ in shown_crops(found)]
        if not boxes:
            raise Broken(f"{call} does not say which region a picture shows", "give crops: see `ShownCrop`")
        if not any(x0 <= x <= x1 and y0 <= y <= y1 for x0, y0, x1, y1 in boxes):
            raise Broken(f"{call} shows {list(boxes[0])}", LOOK)
        answered.update(boxes)
    if len(answered) == 1:
        raise Broken(f"the calls of `look` for {len(REGIONS)} regions all show {list(*answered)}", LOOK)
    return f"{len(REGIONS)} regions"


def _as_floats(value: Any) -> list[float]:
    """How a model may write a whole number: JSON does not distinguish floats."""
    return [float(value)] if type(value) is int else []


async def _called(
    name: str,
    *asked: Mapping[str, Any],
    picture: bytes = b"",
    sides: tuple[int, int] = SIDES,
    sample: Sample | None = None,
) -> list[Observation]:
    """What calls about a picture return; a gradient if no picture is given."""
    part, data, sample = TOOLS[name], picture or gradient(), sample or question()
    scene = Scene(sample, (data,), (View(data, 0, None, sides),))
    if part.opened is None:
        if name not in OURS[TOOLS.kind]:
            raise Broken("`opened` is None: only vtune's own `python` takes code", "give ToolPart `opened`")
        return await _ran(asked, scene)
    with tempfile.TemporaryDirectory() as folder:
        async with open_tool(name, Path(folder), scene.sample) as tool:
            toolbox = Toolbox({name: tool})
            return [await _survived(toolbox, Asked(name, one, "", 0), scene) for one in asked]


@asynccontextmanager
async def open_tool(name: str, folder: Path, sample: Sample | None = None) -> AsyncIterator[Tool]:
    """A tool with its test settings, for one sample or for any; its files are in a folder."""
    part = TOOLS[name]
    assert part.opened is not None
    section = _section(part, folder)
    if part.check is not None:
        part.check(section)
    if part.check_sample is not None and sample is not None:
        part.check_sample(section, sample)
    async with opening(name, part.opened(section, folder / "record.jsonl")) as tool:
        if tool.schema["function"]["name"] != name:
            raise Broken(
                f"the schema is called {tool.schema['function']['name']!r}",
                f"name the schema {name!r}, as the part",
            )
        _check_schema(tool)
        yield tool


async def _ran(asked: Sequence[Mapping[str, Any]], scene: Scene) -> list[Observation]:
    """What code returns, each piece in its own session, as the first call of a trajectory."""
    found = []
    async with Sandbox(warm=1, at_once=False) as sandbox:
        for arguments in asked:
            session = await RecoverableSession.open(sandbox, scene.images, seed=SEED, lost=lambda: None)
            try:
                found.append(await run_python(session, str(arguments[CODE])))
            finally:
                await session.close()
    return found


def _section(part: ToolPart, folder: Path) -> Strict:
    """A recipe's section for the tool in a test."""
    said = part.settings(folder) if callable(part.settings) else part.settings
    return section_of(part.recipe or NoSettings, said, "give ToolPart `settings` to test with")


def _check_schema(tool: Tool) -> None:
    try:
        json.dumps(tool.schema, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Broken(f"the schema is not JSON: {error}", "write texts, numbers, lists and dicts") from error


async def _survived(toolbox: Toolbox, asked: Asked, scene: Scene) -> Observation:
    try:
        found = await toolbox.run(asked, scene, 0, ResultCache())
    except RunFailed:
        raise  # the error already says what is wrong
    except Exception as error:
        if asked.arguments == TOOLS[asked.tool].example:
            fix = "correct the line; Mistake is for what the model did wrong"
        else:
            fix = "raise Mistake where the model is wrong, else correct the line"
        raise Broken(f"{json.dumps(asked.arguments)} raises {raised(error)}", fix) from error
    for image in found.images:
        try:
            decode_picture(image)
        except DataError as error:
            wrong = toolbox.no_picture(asked.tool, error.what)
            raise wrong from wrong.__cause__
    return found

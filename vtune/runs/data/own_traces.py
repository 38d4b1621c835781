"""`vtune data make traces`: cold-start traces for a user's own samples, from boxes or from a run."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError

from vtune.config import load_recipe
from vtune.data.traces import LEGIBLE, LOOKS, Look, Region, code_trace, regions, showable, tool_trace
from vtune.errors import DataError, RecipeError
from vtune.files.writing import check_parquet_output
from vtune.report.progress import Rows
from vtune.reward.recipe import RIGHT, RewardRecipe
from vtune.rollout.prompts import Style, ask
from vtune.runs.data.tiny import add_tiny, check_tiny
from vtune.sandbox import image_names
from vtune.schema.message import Message
from vtune.schema.parquet import (
    at_row,
    count_rows,
    read_samples,
    read_trajectories,
    with_pictures,
    write_trajectories,
)
from vtune.schema.pixels import size_of
from vtune.schema.sample import Sample, check_unanswered
from vtune.schema.trajectory import Trajectory
from vtune.sections import Strict
from vtune.tools import TOOLS
from vtune.tools.calls import Asked
from vtune.tools.python import NAME as PYTHON
from vtune.tools.result_cache import ResultCache
from vtune.tools.tool import Scene, Tool, ToolPart, View
from vtune.tools.toolbox import Toolbox, opening
from vtune.tools.zoom import NAME as ZOOM
from vtune.verifiers.perfect import perfect_reply
from vtune.verifiers.tags import answer as tagged_answer
from vtune.view.place import no_trajectories, portions_of

ZOOMS = {"space": "relative_1000", "min_side": LEGIBLE}
"""Zoom settings in traces: Qwen3-VL's space, and SenseNova-MARS's minimum side (28)."""

CORPUS = 5000
"""Number of trace turns that a tiny model's tokenizer is trained on (ours)."""


class _Paid(Strict):
    """The part of a run's settings that is read; its other sections may be out of date."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    reward: RewardRecipe
    call_images: str = "shown"
    """Only suites have this key."""


def make_box_traces(
    data: Sequence[Path], out: Path, *, prompt: Style, tiny: Path | None = None
) -> dict[str, Any]:
    """Write a trace for each sample with evidence boxes that looks at them and gives the right answer.

    For a sample that offers `python`, code looks at them and enlarges small ones; otherwise the first tool
    that defines how to look (`ToolPart.look`), one turn per box. If boxes fill half of the picture, there is
    nothing to look closer at, and the trace just answers. A sample with more boxes than a trace looks at is
    left out, as its answer would count what the trace has not seen.

    Args:
        data: Files of samples.
        out: Parquet file of traces.
        prompt: Prompt style, as in `rollout.prompt` of the recipe that trains the policy further.
        tiny: Where to also build a tiny model with random weights, whose tokenizer knows the traces' words.

    Returns:
        `file`, `traces`, `left_out`: reason -> number of samples, `without_a_call`: number of traces that
        answer at once, and `tiny`: the model's folder.

    Raises:
        RecipeError: If `out` or `tiny` cannot be written, `out` is an input, or a tool needs settings.
        DataError: If a sample cannot be read, none can be looked at, or a tool refuses to show a region.
    """
    check_parquet_output(out, inputs=data)
    if tiny is not None:
        check_tiny(tiny)
    left_out: Counter[str] = Counter()
    calls: Counter[bool] = Counter()

    def made(toolbox: Toolbox, loop: asyncio.Runner) -> Iterator[Trajectory]:
        for file in data:
            for number, sample in enumerate(read_samples(file)):
                try:
                    check_unanswered(sample)
                    made_of = _unseen(sample) or _looked(with_pictures(sample, file.parent))
                    if isinstance(made_of, str):
                        left_out[made_of] += 1
                        continue
                    trace = loop.run(_box_trace(*made_of, prompt, toolbox))
                    calls[bool(trace.calls)] += 1
                    yield trace
                except DataError as error:
                    raise at_row(file, number, error) from None

    with asyncio.Runner() as loop:
        tools = AsyncExitStack()
        toolbox = loop.run(tools.enter_async_context(_looking(out.with_suffix(".web.jsonl"))))
        try:
            fix = "samples need evidence boxes, and a tool to look with"
            result = _written(out, made(toolbox, loop), left_out, fix)
            result["without_a_call"] = calls[False]
        finally:
            loop.run(tools.aclose())
    if tiny is not None:
        texts = (message.content for trace in read_trajectories(out) for message in trace.messages)
        result["tiny"] = add_tiny(tiny, islice(texts, CORPUS), seed=0)
    return result


def make_run_traces(run: Path, out: Path) -> dict[str, Any]:
    """Write a trace for each question that a run answered right after a faithful look.

    A trajectory is taken if its answer is right, its format has full marks, every call succeeded without a
    red flag, and one call got the full reward for what it showed. Of several for one question, the one with
    the fewest calls is taken, then the shortest. A custom environment that gives a reward handles format and
    looks itself: then the answer must be right, with no failed turn and nothing cut off.

    Args:
        run: Folder of an `rl` or `eval` run.
        out: Parquet file of traces.

    Returns:
        `file`, `traces`, and `left_out`: reason -> number of trajectories.

    Raises:
        RecipeError: If `out` cannot be written.
        DataError: If there are no trajectories, none is suitable, or tools returned blackened pictures.
    """
    files = portions_of(run) or sorted(run.glob("trajectories.parquet"))
    settings = next((run / name for name in ("suite.yaml", "recipe.yaml") if (run / name).is_file()), None)
    if not files or settings is None:
        raise no_trajectories(run)
    paid = load_recipe(settings, _Paid)
    if paid.call_images != "shown":
        raise DataError(
            "the policy saw blackened pictures, which teach nothing",
            where=str(settings),
            fix="use a run with call_images: shown",
        )
    check_parquet_output(out, inputs=files)
    left_out: Counter[str] = Counter()
    best: dict[str, tuple[int, int, Path, int]] = {}
    for file, number, trajectory in _read(files, "choose"):
        why = _unfit(trajectory, full=paid.reward.evidence.full)
        if why:
            left_out[why] += 1
            continue
        length = (len(trajectory.calls), len(trajectory.reply), file, number)
        before = best.setdefault(trajectory.sample_id, length)
        if before != length:
            left_out["another about the same question is shorter"] += 1
            best[trajectory.sample_id] = min(before, length)
    chosen = {(file, number) for *_, file, number in best.values()}
    taken = {file for file, _ in chosen}
    with_some = [file for file in files if file in taken]
    kept = (
        _bare(trajectory)
        for file, number, trajectory in _read(with_some, "write")
        if (file, number) in chosen
    )
    return _written(out, kept, left_out, "train or sample more: no trajectory is right and faithful")


def _read(files: Sequence[Path], title: str) -> Iterator[tuple[Path, int, Trajectory]]:
    """(file, row, trajectory) of files, with progress."""
    with Rows(title, total=sum(map(count_rows, files)), brief=True) as progress:
        for file in files:
            for number, trajectory in enumerate(read_trajectories(file)):
                yield file, number, trajectory
                progress.advance()


def _written(out: Path, traces: Iterator[Trajectory], left_out: Counter[str], fix: str) -> dict[str, Any]:
    def some() -> Iterator[Trajectory]:
        there = False
        for trace in traces:
            there = True
            yield trace
        if not there:
            reasons = ", ".join(f"{count} {why}" for why, count in left_out.most_common())
            raise DataError(f"no trace can be made ({reasons or 'the files are empty'})", fix=fix)

    count = write_trajectories(out, some())
    return {"file": str(out), "traces": count, "left_out": dict(left_out)}


@asynccontextmanager
async def _looking(record: Path) -> AsyncIterator[Toolbox]:
    """All tools that can look, opened.

    Raises:
        RecipeError: If one needs settings.
    """
    async with AsyncExitStack() as stack:
        tools: dict[str, Tool] = {}
        for name, part in TOOLS.items():
            if part.look is not None and part.opened is not None:
                section = _section(name, part)
                tools[name] = await stack.enter_async_context(opening(name, part.opened(section, record)))
        yield Toolbox(tools)


def _section(name: str, part: ToolPart) -> Any:
    """Settings for a tool that looks, as in a recipe."""
    if part.recipe is None:
        return {}
    try:
        return part.recipe.model_validate(ZOOMS if name == ZOOM else {})
    except ValidationError as error:
        keys = ", ".join(".".join(map(str, one["loc"])) for one in error.errors())
        raise RecipeError(
            f"traces have no settings for {name}, which needs {keys}",
            fix="give these keys defaults in the file",
        ) from None


def _looks_with(sample: Sample) -> str | None:
    """The tool with which a trace looks at the sample."""
    if PYTHON in sample.tools:
        return PYTHON
    return next((name for name in sample.tools if name in TOOLS and TOOLS[name].look is not None), None)


def _unseen(sample: Sample) -> str:
    """Why it is unknown how to look at the sample, or an empty text."""
    if not sample.evidence:
        return "without evidence boxes"
    tool = _looks_with(sample)
    if tool is None:
        return "without a tool to look with"
    if len(sample.evidence) > LOOKS:
        return f"with more boxes than a trace looks at ({LOOKS})"
    sides = [min(item.bbox[2] - item.bbox[0], item.bbox[3] - item.bbox[1]) for item in sample.evidence]
    too_small = tool == ZOOM and min(sides) < LEGIBLE
    return "with a box too small for a zoom, which enlarges nothing" if too_small else ""


def _looked(sample: Sample) -> tuple[Sample, list[Region]] | str:
    """A sample whose pictures hold their bytes, with the regions to look at; or why that is impossible."""
    shown = regions(sample)
    if 0 < len(shown) < len(sample.evidence):
        return "with boxes that together fill too much of a picture to look closer at each"
    if PYTHON in sample.tools and not all(map(showable, shown)):
        # E.g. a one-pixel line: once legible, it would exceed the maximum width of a picture.
        return "with a box too thin, small or large: what code shows of it breaks the limits of pictures"
    return sample, shown


async def _box_trace(sample: Sample, shown: Sequence[Region], prompt: Style, toolbox: Toolbox) -> Trajectory:
    data = [picture.data or b"" for picture in sample.images]
    by_code = PYTHON in sample.tools
    schemas = [] if by_code else toolbox.schemas(sample.tools)
    sizes = [size_of(one) for one in data]
    opening = _numbered(ask(prompt, sample, image_names(data), sizes, schemas, draw=0))
    reply = perfect_reply(sample)
    answer = tagged_answer(reply)
    final = f"<think>{'Now I see it.' if shown else 'It is large enough to see.'}</think>\n{reply}"
    if by_code and shown:
        return code_trace(sample, opening, shown, final=final, answer=answer)
    looks = [await _look(sample, data, region, toolbox) for region in shown]
    return tool_trace(sample, opening, looks, final=final, answer=answer)


async def _look(sample: Sample, data: Sequence[bytes], region: Region, toolbox: Toolbox) -> Look:
    """What the sample's tool returns for a region.

    Raises:
        DataError: If the tool refuses or fails.
    """
    name = _looks_with(sample)
    assert name is not None
    look = TOOLS[name].look
    assert look is not None
    number, (x0, y0, x1, y1), _ = region
    box = (float(x0), float(y0), float(x1), float(y1))
    arguments = dict(look(number, box, size_of(data[number])))
    views = tuple(View(one, place, None, size_of(one)) for place, one in enumerate(data))
    asked = Asked(name, arguments, problem="", end=0)
    seen = await toolbox.run(asked, Scene(sample, tuple(data), views), 0, ResultCache())
    if seen.status != "ok":
        raise DataError(
            f"{name} shows no {list(box)} of picture {number}: {seen.error}",
            fix="let its `look` return arguments that it accepts, for any region of a picture",
        )
    return name, arguments, seen


def _numbered(opening: Sequence[Message]) -> tuple[Message, ...]:
    """Turns whose marks number the pictures from 0."""
    found: list[Message] = []
    first = 0
    for message in opening:
        count = message.content.count("<image>")
        found.append(replace(message, images=tuple(range(first, first + count))))
        first += count
    return tuple(found)


def _unfit(trajectory: Trajectory, *, full: float) -> str:
    """Why a trajectory is unsuitable as an example, or an empty text."""
    reward = trajectory.reward
    if reward is None or reward.accuracy is None or reward.format is None:
        return "unscored"
    if reward.accuracy < RIGHT:
        return "wrong"
    if trajectory.outcome is not None:
        # A custom environment has its own tags, and its actions are not looks.
        if trajectory.stop_reason != "answer":
            return "cut off"
        failed = any(call.status != "ok" for call in trajectory.calls)
        return "with a turn that its environment did not take" if failed else ""
    if reward.format < 1 or trajectory.stop_reason != "answer":
        return "not well formed"
    if not trajectory.calls:
        return "without a look"
    if any(call.status != "ok" or call.flags for call in trajectory.calls):
        return "with a call that failed or has a red flag"
    shown = any(score is not None and score >= full for score in trajectory.tool_scores)
    if trajectory.needs_look is False and not shown:
        return "right where no look is paid for"
    return "" if shown else "without a faithful look"


def _bare(trajectory: Trajectory) -> Trajectory:
    """The trajectory without data specific to the policy that generated it."""
    return Trajectory(
        sample_id=trajectory.sample_id,
        source=trajectory.source,
        messages=trajectory.messages,
        images=tuple(replace(picture, seen=None) for picture in trajectory.images),
        calls=tuple(replace(call, span=(0, 0)) for call in trajectory.calls),
        answer=trajectory.answer,
    )

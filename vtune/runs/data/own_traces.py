"""`vtune data make traces`: cold-start traces of a user's own samples, from boxes or from a run."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from vtune.config import Strict, load_recipe
from vtune.data.traces import LEGIBLE, code_trace, regions, zoom_trace
from vtune.errors import DataError
from vtune.files.writing import check_file_output
from vtune.reward.recipe import RIGHT, RewardRecipe
from vtune.rollout.prompts import Style, ask
from vtune.sandbox import image_names
from vtune.schema.message import Message
from vtune.schema.parquet import at_row, load_picture, read_samples, read_trajectories, write_trajectories
from vtune.schema.pixels import size_of
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.tools.python import NAME as PYTHON
from vtune.tools.zoom import NAME as ZOOM
from vtune.tools.zoom import Zoom, ZoomRecipe
from vtune.verifiers.perfect import perfect_reply
from vtune.verifiers.tags import answer as tagged_answer

SCHEMAS = [Zoom(ZoomRecipe(space="relative_1000", min_side=28)).schema]
"""Of the zoom that traces call: Qwen3-VL's space, and SenseNova-MARS's least side."""


class _Paid(Strict):
    """What is read of a run's settings; its other sections may be older than today's."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    reward: RewardRecipe
    call_images: str = "shown"
    """Only suites have it."""


def make_box_traces(data: Sequence[Path], out: Path, *, prompt: Style) -> dict[str, Any]:
    """Write a trace for each sample with evidence boxes: it looks at them, and answers right.

    A sample that offers `python` is looked at by code, which enlarges what is small; one that offers
    `image_zoom_in_tool` by zooms, one turn each. Where boxes fill half of the picture, there is nothing to
    look closer at: the trace answers.

    Args:
        data: Files of samples.
        out: Parquet file of traces.
        prompt: How the samples are put, as `rollout.prompt` of the recipe that continues with the policy.

    Returns:
        `file`, `traces`, and `left_out`: reason -> samples.

    Raises:
        RecipeError: If `out` cannot be written, or is what is read.
        DataError: If a sample cannot be read, or none can be looked at.
    """
    check_file_output(out, inputs=data)
    left_out: Counter[str] = Counter()

    def made() -> Iterator[Trajectory]:
        for file in data:
            for number, sample in enumerate(read_samples(file)):
                why = _unseen(sample)
                if why:
                    left_out[why] += 1
                    continue
                try:
                    yield _box_trace(_filled(sample, file.parent), prompt)
                except DataError as error:
                    raise at_row(file, number, error) from None

    return _written(out, made(), left_out, "samples need evidence boxes, and a tool to look with")


def make_run_traces(run: Path, out: Path) -> dict[str, Any]:
    """Write a trace for each question that a run has answered right after a faithful look.

    A trajectory is taken if its answer is right, its form has full marks, every call ended well without a red
    flag, and one was paid in full for what it showed. Of several about one question, the one with the fewest
    calls is taken, then the shortest.

    Args:
        run: Folder of an `rl` or `eval` run.
        out: Parquet file of traces.

    Returns:
        `file`, `traces`, and `left_out`: reason -> trajectories.

    Raises:
        RecipeError: If `out` cannot be written.
        DataError: If there are no trajectories, none of them is fit, or tools returned blackened pictures.
    """
    files = sorted(run.glob("trajectories/*.parquet")) or sorted(run.glob("trajectories.parquet"))
    settings = next((run / name for name in ("suite.yaml", "recipe.yaml") if (run / name).is_file()), None)
    if not files or settings is None:
        raise DataError(
            "there are no trajectories", where=str(run), fix="give a folder of `vtune rl` or `vtune eval`"
        )
    paid = load_recipe(settings, _Paid)
    if paid.call_images != "shown":
        raise DataError(
            "the policy saw blackened pictures, which teach nothing",
            where=str(settings),
            fix="take a run with call_images: shown",
        )
    check_file_output(out, inputs=files)
    left_out: Counter[str] = Counter()
    best: dict[str, tuple[int, int, Path, int]] = {}
    for file in files:
        for number, trajectory in enumerate(read_trajectories(file)):
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
    kept = (
        _bare(trajectory)
        for file in files
        for number, trajectory in enumerate(read_trajectories(file))
        if (file, number) in chosen
    )
    return _written(out, kept, left_out, "train or sample more: no trajectory is right and faithful")


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


def _unseen(sample: Sample) -> str:
    """Why it is unknown how to look, or an empty text."""
    if not sample.evidence:
        return "without evidence boxes"
    if PYTHON in sample.tools:
        return ""
    if ZOOM not in sample.tools:
        return "without a tool to look with"
    sides = [min(item.bbox[2] - item.bbox[0], item.bbox[3] - item.bbox[1]) for item in sample.evidence]
    return "with a box too small for a zoom, which enlarges nothing" if min(sides) < LEGIBLE else ""


def _box_trace(sample: Sample, prompt: Style) -> Trajectory:
    data = [picture.data or b"" for picture in sample.images]
    by_code = PYTHON in sample.tools
    schemas = [] if by_code else SCHEMAS
    sizes = [size_of(one) for one in data]
    opening = ask(prompt, sample, image_names(data), sizes, schemas, draw=0)
    shown = regions(sample)
    reply = perfect_reply(sample)
    answer = tagged_answer(reply)
    final = f"<think>{'Now I see it.' if shown else 'It is large enough to see.'}</think>\n{reply}"
    trace = code_trace if by_code and shown else zoom_trace
    return trace(sample, _numbered(opening), shown, final=final, answer=answer)


def _numbered(opening: Sequence[Message]) -> tuple[Message, ...]:
    """Turns whose marks count the pictures from 0."""
    found: list[Message] = []
    first = 0
    for message in opening:
        count = message.content.count("<image>")
        found.append(replace(message, images=tuple(range(first, first + count))))
        first += count
    return tuple(found)


def _filled(sample: Sample, base: Path) -> Sample:
    images = tuple(replace(picture, data=load_picture(picture, base)) for picture in sample.images)
    return replace(sample, images=images)


def _unfit(trajectory: Trajectory, *, full: float) -> str:
    """Why a trajectory is not an example, or an empty text."""
    reward = trajectory.reward
    if reward is None or reward.accuracy is None or reward.format is None:
        return "unscored"
    if reward.accuracy < RIGHT:
        return "wrong"
    if reward.format < 1 or trajectory.stop_reason != "answer":
        return "not well formed"
    if not trajectory.calls:
        return "without a look"
    if any(call.status != "ok" or call.flags for call in trajectory.calls):
        return "with a call that failed or has a red flag"
    shown = any(score is not None and score >= full for score in trajectory.tool_scores)
    return "" if shown else "without a faithful look"


def _bare(trajectory: Trajectory) -> Trajectory:
    """What is learnt from: not what the policy that wrote it made of it."""
    return Trajectory(
        sample_id=trajectory.sample_id,
        source=trajectory.source,
        messages=trajectory.messages,
        images=tuple(replace(picture, seen=None) for picture in trajectory.images),
        calls=tuple(replace(call, span=(0, 0)) for call in trajectory.calls),
        answer=trajectory.answer,
    )

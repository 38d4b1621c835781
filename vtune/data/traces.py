"""Cold-start traces: what a policy that looks before it answers would have written."""

import json
from collections.abc import Mapping, Sequence
from math import ceil, floor
from typing import Any

from vtune.errors import DataError
from vtune.sandbox.types import Limits
from vtune.schema.box import Box
from vtune.schema.decode import png_of
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.pixels import MAX_SIDE, Refused, check_size, decode_picture, size_of
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Crop, Trajectory
from vtune.tools.calls import CLOSE, OPEN, tool_response
from vtune.tools.observation import Observation, recorded
from vtune.tools.python import NAME as PYTHON

Region = tuple[int, tuple[int, int, int, int], int]
"""Picture number, region in whole pixels (xyxy), and the factor that makes it legible when enlarged."""

Look = tuple[str, Mapping[str, Any], Observation]
"""Name of a tool, the arguments of a call, and what it returned."""

MARGIN = 0.25
"""Share of a box's sides that a look adds around it (ours)."""
MOST = 0.5
"""Share of a picture that all looks together may cover (ours, as `most_of_input`): more is not a look."""
LOOKS = 4
"""Maximum number of boxes that a trace looks at (ours; the sandbox returns five pictures per call)."""
LEGIBLE = 28
"""Minimum side of a target in pixels (as `legible_side`): a visual token of Qwen2.5-VL."""


def regions(sample: Sample) -> list[Region]:
    """What is worth a look: the evidence boxes with a margin, as long as they cover only part of their
    picture.

    Args:
        sample: Its pictures hold their bytes; samples with more than `LOOKS` boxes get no trace.
    """
    found: list[Region] = []
    covered: dict[int, float] = {}
    for item in sample.evidence:
        width, height = size_of(sample.images[item.image].data or b"")
        x0, x1 = _widened(item.bbox[0], item.bbox[2], width)
        y0, y1 = _widened(item.bbox[1], item.bbox[3], height)
        share = covered.get(item.image, 0.0) + (x1 - x0) * (y1 - y0) / (width * height)
        if share <= MOST:
            covered[item.image] = share
            side = min(item.bbox[2] - item.bbox[0], item.bbox[3] - item.bbox[1])
            # Cap the factor at the pixel limit for a side: a box may be extremely thin.
            times = max(ceil(min(LEGIBLE / side, MAX_SIDE + 1)), 1)
            found.append((item.image, (x0, y0, x1, y1), times))
    return found


def showable(region: Region) -> bool:
    """Whether code could show the policy the enlarged region: the sandbox and files reject larger ones."""
    _, (x0, y0, x1, y1), times = region
    try:
        check_size(times * (x1 - x0), times * (y1 - y0), max_pixels=Limits().max_pixels)
    except Refused:
        return False
    return True


def code_trace(
    sample: Sample, opening: Sequence[Message], shown: Sequence[Region], *, final: str, answer: str | None
) -> Trajectory:
    """The trace of one code call that crops regions, and the answer.

    Args:
        sample: The question; its pictures hold their bytes.
        opening: The turns before the policy's first.
        shown: The regions to crop; not empty.
        final: The policy's last turn.
        answer: The content of `<answer>` in that turn.
    """
    lines = []
    for count, (number, box, times) in enumerate(shown):
        cut = f"{'image' if number == 0 else f'images[{number}]'}.crop({box})"
        if times > 1:
            cut += f".resize(({times * (box[2] - box[0])}, {times * (box[3] - box[1])}))"
        lines.append(f'{cut}.save("look_{count}.png")')
    code = "\n```python\n" + "\n".join(lines) + "\n```\n"
    marks = "\n".join([IMAGE] * len(shown))
    first = len(sample.images)
    numbers = tuple(range(first, first + len(shown)))
    call = Call(
        tool=PYTHON,
        arguments=json.dumps({"code": code}),
        status="ok",
        images=numbers,
        crops=tuple(_crop(region, place) for region, place in zip(shown, numbers, strict=True)),
    )
    return Trajectory(
        sample_id=sample.id,
        source=sample.source,
        messages=(
            *opening,
            Message("assistant", f"<think>{_thought(sample)}\n<code>{code}</code>"),
            Message("user", f"<sandbox_output>\n{marks}\n</sandbox_output>", numbers),
            Message("assistant", final),
        ),
        images=(*sample.images, *[_shown(sample, region, 0) for region in shown]),
        calls=(call,),
        answer=answer,
    )


def tool_trace(
    sample: Sample, opening: Sequence[Message], looks: Sequence[Look], *, final: str, answer: str | None
) -> Trajectory:
    """The trace of one JSON tool call per turn, and the answer.

    Args:
        sample: The question; its pictures hold their bytes.
        opening: The turns before the policy's first.
        looks: The calls and what the tool returned.
        final: The policy's last turn.
        answer: The content of `<answer>` in that turn.
    """
    messages, images, calls = [*opening], [*sample.images], []
    for count, (name, arguments, seen) in enumerate(looks):
        asked = json.dumps({"name": name, "arguments": arguments})
        first = len(images)
        places = tuple(range(first, first + len(seen.images)))
        messages += [
            Message("assistant", f"<think>{_thought(sample)}</think>\n{OPEN}\n{asked}\n{CLOSE}"),
            Message("user", tool_response(seen.text), places),
        ]
        images += [Picture(data=data, origin=f"call:{count}") for data in seen.images]
        calls.append(
            Call(
                tool=name,
                arguments=json.dumps(arguments),
                status="ok",
                output=seen.output,
                images=places,
                crops=recorded(seen.crops, first),
            )
        )
    return Trajectory(
        sample_id=sample.id,
        source=sample.source,
        messages=(*messages, Message("assistant", final)),
        images=tuple(images),
        calls=tuple(calls),
        answer=answer,
    )


def _widened(low: float, high: float, end: int) -> tuple[int, int]:
    """An interval widened by the margin to whole pixels, clipped to a picture's side."""
    around = (high - low) * MARGIN
    return max(floor(low - around), 0), min(ceil(high + around), end)


def _thought(sample: Sample) -> str:
    labels = {item.label for item in sample.evidence if item.label}
    # A label that is the answer is unknown before the look.
    said = labels - {sample.answer, sample.ground_truth} if len(labels) == 1 else ()
    return f"I look closer at {next(iter(said))}." if said else "I look closer."


def _crop(region: Region, place: int) -> Crop:
    number, (x0, y0, x1, y1), _ = region
    return Crop(image=number, bbox=(float(x0), float(y0), float(x1), float(y1)), shown=place)


def _shown(sample: Sample, region: Region, call: int) -> Picture:
    number, box, times = region
    cut = decode_picture(sample.images[number].data or b"").crop(box)
    if times > 1:
        cut = cut.resize((times * cut.width, times * cut.height))
    return Picture(data=png_of(cut), origin=f"call:{call}")


_OBSERVED = "<sandbox_output>\n<image>\n</sandbox_output>"


def look_trace(
    sample: Sample, box: tuple[int, int, int, int] | None, said: str = "", shown: bytes | None = None
) -> Trajectory:
    """The trace of one crop of the first picture, or of none, and the right answer.

    Args:
        sample: The question; its first picture must hold its bytes.
        box: The crop, xyxy in pixels; None for an answer without a look.
        said: Text after the crop, as `rollout.feedback` writes it; empty for none.
        shown: The crop, as PNG; None: it is cropped from the picture.

    Raises:
        DataError: If there is no picture to crop.
    """
    final = f"<think>It is {sample.ground_truth}.</think>\n<answer>{sample.ground_truth}</answer>"
    if box is None:
        return Trajectory(
            sample_id=sample.id,
            source=sample.source,
            messages=(*sample.prompt, Message("assistant", final)),
            images=sample.images,
            answer=sample.ground_truth,
        )
    if not sample.images or sample.images[0].data is None:
        raise DataError("a trace needs a picture with its bytes", where=f"sample {sample.id!r}")
    x0, y0, x1, y1 = box
    code = f'\n```python\nimage.crop(({x0},{y0},{x1},{y1})).save("look.png")\n```\n'
    if shown is None:
        shown = png_of(decode_picture(sample.images[0].data).crop(box))
    region: Box = (float(x0), float(y0), float(x1), float(y1))
    place = len(sample.images)
    return Trajectory(
        sample_id=sample.id,
        source=sample.source,
        messages=(
            *sample.prompt,
            Message("assistant", f"<think>I look closer.\n<code>{code}</code>"),
            Message("user", "\n".join([_OBSERVED, said] if said else [_OBSERVED]), (place,)),
            Message("assistant", final),
        ),
        images=(*sample.images, Picture(data=shown, origin="call:0")),
        calls=(
            Call(
                tool=PYTHON,
                arguments=json.dumps({"code": code}),
                status="ok",
                images=(place,),
                crops=(Crop(image=0, bbox=region, shown=place),),
            ),
        ),
        answer=sample.ground_truth,
    )

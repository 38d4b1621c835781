"""What a model sees of a tool call, and what the record keeps of it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from numbers import Integral
from typing import get_args

from vtune.models.families.hermes import HERMES
from vtune.sandbox import ShownCrop
from vtune.schema.box import proper
from vtune.schema.pixels import size_of
from vtune.schema.trajectory import Crop, Status

IMAGE_MARK = "<image>"
"""Placeholder for a picture, as in the user's turn."""

ROUNDING = 1.0
"""Pixels by which a region may extend beyond its picture, because its corners were rounded; ours."""

_SPECIAL = re.compile(
    rf"<(?=/?(?:image|sandbox_output|code|think|answer|{HERMES.call}|{HERMES.response})>|\|)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The result of one tool call."""

    text: str
    """What the model reads, with one `<image>` per picture; empty for `infra`."""
    images: tuple[bytes, ...] = ()
    """Encoded pictures, in the order of their marks."""
    status: Status
    error: str = ""
    output: str = ""
    """What was printed, unchanged."""
    crops: tuple[ShownCrop, ...] = ()
    seconds: float = 0.0


def unfit(seen: Observation, known: Sequence[bytes | None]) -> str:
    """Why a conversation with these pictures, and its record, cannot include it; empty if they can."""
    texts = (seen.text, seen.output, seen.error)
    if not all(isinstance(text, str) for text in texts) or any(text != encodable(text) for text in texts):
        return "`text`, `output` and `error` of an observation are texts that UTF-8 can hold: see `encodable`"
    if seen.status not in get_args(Status):
        return f"`status` of an observation is {seen.status!r:.40}: give one of {', '.join(get_args(Status))}"
    lists = all(isinstance(values, list | tuple) for values in (seen.images, seen.crops))
    if not lists or not all(isinstance(data, bytes) for data in seen.images):
        return "`images` of an observation are pictures as encoded bytes, and `crops` are of ShownCrop"
    marks, count = seen.text.count(IMAGE_MARK), len(seen.images)
    if marks != count:
        return (
            f"its text has {marks} {IMAGE_MARK} for {count} picture(s); `inert` takes marks out of found text"
        )
    return next(filter(None, (_region(crop, known, count) for crop in seen.crops)), "")


def tidy(seen: Observation) -> Observation:
    """A fit observation, with tuples where a user's own tool may have given lists."""
    return replace(seen, images=tuple(seen.images), crops=tuple(map(_plain, seen.crops)))


def _region(crop: ShownCrop, known: Sequence[bytes | None], count: int) -> str:
    """What is wrong with a region that a call claims to show; empty if nothing.

    Args:
        crop: The region.
        known: Encoded pictures of the conversation, in whose pixels regions are; None: not known.
        count: Number of pictures that the call returned.
    """
    if not isinstance(crop, ShownCrop):
        return f"`crops` of an observation holds {type(crop).__name__}: give ShownCrop"
    if not isinstance(crop.image, Integral) or not isinstance(crop.shown, Integral | None):
        return f"a crop has `image` {crop.image!r:.40} and `shown` {crop.shown!r:.40}: number pictures from 0"
    if not 0 <= crop.image < len(known):
        return f"a crop has `image` {crop.image}, and the conversation has {len(known)} picture(s), from 0"
    if crop.shown is not None and not 0 <= crop.shown < count:
        return f"a crop has `shown` {crop.shown}, and the call returned {count} picture(s), from 0"
    box = _floats(crop.bbox)
    if len(box) != 4 or not proper((box[0], box[1], box[2], box[3])):
        return f"a crop has `bbox` {crop.bbox}: give (x0, y0, x1, y1), finite and with an inside"
    if (data := known[crop.image]) is not None and not _within(box, size_of(data)):
        width, height = size_of(data)
        return (
            f"a crop has `bbox` {crop.bbox}, and picture {crop.image} has {width}x{height} pixels: give the "
            "part that lies within; `matrix` says where each pixel was, should it show a margin too"
        )
    matrix = None if crop.matrix is None else _floats(crop.matrix)
    if matrix is not None and (len(matrix) not in (6, 9) or not all(map(isfinite, matrix))):
        return f"a crop has `matrix` {crop.matrix}: give six or nine finite numbers"
    return ""


def _within(box: Sequence[float], size: tuple[int, int]) -> bool:
    """Whether a region lies within a picture of size (width, height), allowing for rounding."""
    return min(box) >= -ROUNDING and box[2] <= size[0] + ROUNDING and box[3] <= size[1] + ROUNDING


def _floats(values: Iterable[float]) -> tuple[float, ...]:
    """Numbers as stored in the record, whatever kind of list a tool returned; () for anything else."""
    try:
        return tuple(map(float, values))
    except (TypeError, ValueError):
        return ()


def _plain(crop: ShownCrop) -> ShownCrop:
    x0, y0, x1, y1 = _floats(crop.bbox)
    return replace(crop, bbox=(x0, y0, x1, y1), matrix=None if crop.matrix is None else _floats(crop.matrix))


def recorded(crops: Iterable[ShownCrop], first: int) -> tuple[Crop, ...]:
    """What a call showed, in the form of a trajectory; `first` is the index of the call's first picture."""
    return tuple(
        Crop(
            image=crop.image,
            bbox=crop.bbox,
            shown=None if crop.shown is None else first + crop.shown,
            matrix=crop.matrix,
        )
        for crop in crops
    )


def sandbox_output(text: str) -> str:
    """The frame around everything that a sandbox outputs (CodeV, template 13.1)."""
    return f"<sandbox_output>\n{text}\n</sandbox_output>"


def inert(text: str) -> str:
    """Text without marks of the protocol, and without half surrogate pairs, which no file can store.

    What code prints is the model's own writing, and what a search finds may be anyone's: a printed `<image>`
    must not count as a picture, nor a printed `</sandbox_output>` end the output.
    """
    return _SPECIAL.sub("< ", encodable(text))


def encodable(text: str) -> str:
    """Text that can be encoded: half a surrogate pair, which JSON may contain, becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")

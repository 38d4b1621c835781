"""What a model sees of a tool call, and what is kept of it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from vtune.models.families.hermes import HERMES
from vtune.sandbox import ShownCrop
from vtune.schema.trajectory import Crop, Status

IMAGE_MARK = "<image>"
"""Stands where a picture goes, as in the user's turn."""

_SPECIAL = re.compile(
    rf"<(?=/?(?:image|sandbox_output|code|think|answer|{HERMES.call}|{HERMES.response})>|\|)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The result of one tool call."""

    text: str
    """What the model reads, with one `<image>` for each picture; empty for `infra`."""
    images: tuple[bytes, ...] = ()
    """Encoded pictures, in the order of their marks."""
    status: Status
    error: str = ""
    output: str = ""
    """What was printed, as it was."""
    crops: tuple[ShownCrop, ...] = ()
    seconds: float = 0.0


def unfit(seen: Observation) -> str:
    """Why a conversation and its record cannot hold an observation; empty: they can."""
    texts = (seen.text, seen.output, seen.error)
    if not all(isinstance(text, str) for text in texts) or any(text != encodable(text) for text in texts):
        return "`text`, `output` and `error` of an observation are texts that UTF-8 can hold: see `encodable`"
    if seen.status not in get_args(Status):
        return f"`status` of an observation is {seen.status!r:.40}: give one of {', '.join(get_args(Status))}"
    if not all(isinstance(data, bytes) for data in seen.images):
        return "`images` of an observation are pictures as encoded bytes"
    marks, count = seen.text.count(IMAGE_MARK), len(seen.images)
    if marks == count:
        return ""
    return f"its text has {marks} {IMAGE_MARK} for {count} picture(s); `inert` takes marks out of found text"


def recorded(crops: Iterable[ShownCrop], first: int) -> tuple[Crop, ...]:
    """What a call showed as a trajectory holds it, where the call's first picture has number `first`."""
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
    """The frame around all that a sandbox says (CodeV, template 13.1)."""
    return f"<sandbox_output>\n{text}\n</sandbox_output>"


def inert(text: str) -> str:
    """Text without marks of the protocol, and without halves of characters that no file can hold.

    What code prints is the model's own writing, and what a search finds is anybody's: a printed `<image>`
    must not count as a picture, nor a printed `</sandbox_output>` end the output.
    """
    return _SPECIAL.sub("< ", encodable(text))


def encodable(text: str) -> str:
    """Text that can be encoded: half a surrogate pair, which JSON may spell, becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")

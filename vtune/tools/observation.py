"""What a model sees of a tool call, and what is kept of it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

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

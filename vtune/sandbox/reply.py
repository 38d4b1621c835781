"""What a session says about a call: untrusted, so it is checked before it becomes a record."""

import math
from dataclasses import dataclass
from typing import Any

from vtune.sandbox.guest import folders
from vtune.sandbox.process import ProtocolError
from vtune.sandbox.types import ShownCrop
from vtune.schema.box import proper

WORKSPACE = "/workspace"
"""What a model sees instead of its folder's real name, which differs from run to run."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A session's answer to a call."""

    status: str
    error: str
    written: tuple[str, ...]
    """New pictures, in order."""
    broken: frozenset[str]
    """Those that cannot be decoded."""
    crops: tuple[dict[str, Any], ...]


def checked(reply: dict[str, Any], inputs: int) -> Answer:
    """The reply as a record; `inputs` is the number of input images.

    Raises:
        ProtocolError: If the runner would not write it.
    """
    try:
        written = tuple(str(name) for name in reply["written"])
        broken = frozenset(str(name) for name in reply["broken"])
        crops = tuple(dict(crop) for crop in reply["crops"])
        for crop in crops:
            crop_of(crop, inputs, {})
        status, error = reply["status"], reply["error"]
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as wrong:
        raise ProtocolError(str(wrong)) from wrong
    if status not in ("ok", "error", "timeout", "limit") or not isinstance(error, str):
        raise ProtocolError(f"status {status!r}")
    return Answer(status, error, written, broken, crops)


def crop_of(crop: dict[str, Any], inputs: int, shown: dict[str, int]) -> ShownCrop:
    """One crop as a record; `shown` maps the name of each returned picture to its number.

    Raises:
        ValueError, TypeError, KeyError, OverflowError: If it is not a crop of an input.
    """
    x0, y0, x1, y1 = _numbers(crop["bbox"])
    if not proper((x0, y0, x1, y1)):
        raise ValueError(f"a crop of the box {crop['bbox']}")
    image, name = crop["image"], crop["shown"]
    if type(image) is not int or not 0 <= image < inputs or not (name is None or isinstance(name, str)):
        raise ValueError(f"a crop of image {image} shown in {name!r}")
    matrix = None if crop.get("matrix") is None else _numbers(crop["matrix"])
    if matrix is not None and (len(matrix) not in (6, 9) or not all(map(math.isfinite, matrix))):
        raise ValueError(f"a map of {len(matrix)} numbers")
    index = None if name is None else shown.get(name)
    return ShownCrop(bbox=(x0, y0, x1, y1), image=image, shown=index, matrix=matrix)


def _numbers(values: Any) -> tuple[float, ...]:
    """A list of numbers, without anything that merely passes for one."""
    if not isinstance(values, list) or any(type(value) not in (int, float) for value in values):
        raise TypeError(f"{values!r:.60} where a list of numbers is needed")
    return tuple(map(float, values))


def nameless(text: str, session: str) -> str:
    """Text without the real name of a session's folder, in a form that can be stored."""
    for name, shown in ((f"{session}/{folders.WORKSPACE}", WORKSPACE), (session.rpartition("/")[0], "/")):
        text = text.replace(name, shown)
    return without_surrogates(text)


def without_surrogates(text: str) -> str:
    """Text without lone surrogates, which file names and printed garbage may contain."""
    return text.encode("utf-8", "replace").decode()

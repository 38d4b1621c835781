"""A promise of a part, tried."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Sample

SIDES = (64, 48)
"""Width and height of the picture that parts are tried on."""


SHOWN = Sample(
    id="check/1",
    source="check",
    prompt=(Message("user", f"{IMAGE}\nWhich one?"),),
    images=(Picture(data=b""),),
    ground_truth="A",
    verifier="",
)
"""A question about a picture."""


@dataclass(frozen=True, slots=True)
class Check:
    """A promise, and whether it is kept."""

    name: str
    ok: bool
    found: str
    """What was measured, or what is wrong."""


class Broken(Exception):
    """A promise that is not kept, in words."""


def tried(name: str, run: Callable[[], str]) -> Check:
    """A promise, by a function that returns what it found, or raises what is wrong."""
    try:
        return Check(name, True, run())
    except Broken as broken:
        return Check(name, False, str(broken))
    except Exception as error:  # noqa: BLE001 - a user's part may raise anything: it is reported
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return Check(
            name, False, f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"
        )


def in_time(seconds: float, most: float, of: str, fix: str) -> str:
    """The seconds that something took, in words.

    Raises:
        Broken: If they are more than `most`.
    """
    told = f"{seconds * 1000:.3g} ms for {of}, {most * 1000:g} ms at most"
    if seconds > most:
        raise Broken(f"{told}: {fix}" if fix else told)
    return told

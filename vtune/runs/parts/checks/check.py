"""A promise of a part, and its test."""

import io
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image
from pydantic import BaseModel, ValidationError

from vtune.errors import BrokenPart, OutOfRange, VtuneError
from vtune.report.progress import say
from vtune.rollout.blocking import line_of_theirs
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Sample
from vtune.uses import TRIES, broken

T = TypeVar("T", bound=BaseModel)

PATIENCE = 5.0
"""Seconds a check may take before a line says what is being waited for, ours."""

SIDES = (64, 48)
"""Width and height of the picture that parts are tested on."""


def gradient() -> bytes:
    """A picture, encoded."""
    out = io.BytesIO()
    Image.linear_gradient("L").resize(SIDES).convert("RGB").save(out, "PNG")
    return out.getvalue()


def question() -> Sample:
    """A question about a picture, created anew each time: a part may have modified the previous one."""
    return Sample(
        id="check/1",
        source="check",
        prompt=(Message("user", f"{IMAGE}\nWhich one?"),),
        images=(Picture(data=gradient()),),
        ground_truth="A",
        verifier="",
    )


@dataclass(frozen=True, slots=True)
class Check:
    """A promise, and whether it is kept."""

    name: str
    ok: bool
    found: str
    """What was measured, or what is wrong."""
    fix: str = ""
    """The remedy; empty where the promise is kept."""
    bug: str = ""
    """Identifies checks that fail because of one mistake: the error with its line, or what is wrong."""


class Broken(Exception):
    """A promise that is not kept.

    Args:
        what: What was found, in words.
        fix: The remedy.
    """

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what, fix)
        self.what, self.fix = what, fix


def tried(name: str, run: Callable[[], str]) -> Check:
    """Test a promise with a function that returns what it found, or raises what is wrong.

    If it takes long, a line on stderr says what is being waited for.
    """
    timer = threading.Timer(PATIENCE, _waits, (name, threading.get_ident()))
    timer.daemon = True
    timer.start()
    try:
        return Check(name, True, run())
    except Broken as promise:
        cause = promise.__cause__
        bug = raised(cause) if isinstance(cause, Exception) else promise.what
        return Check(name, False, promise.what, promise.fix, bug)
    except Exception as error:  # noqa: BLE001 - a user's part may raise anything: it is reported
        fix = error.fix.removesuffix(f"; {TRIES}") if isinstance(error, VtuneError | OutOfRange) else ""
        return Check(name, False, raised(error), fix or "correct the line", raised(error))
    finally:
        timer.cancel()


def once(checks: Sequence[Check]) -> list[Check]:
    """Checks without those that would only repeat what an earlier one reports."""
    first: dict[str, Check] = {}
    for check in checks:
        if not check.ok:
            first.setdefault(check.bug, check)
    return [check for check in checks if check.ok or first[check.bug] is check]


def _waits(name: str, thread: int) -> None:
    line = line_of_theirs(thread)
    at = "" if line is None else f", at {line}"
    say(f"{name}: no end after {PATIENCE:g} s{at}; still waiting (Ctrl-C ends it)")


def raised(error: Exception) -> str:
    """An error, with the line of the user's file where it was raised; failing that, the line of ours."""
    failed = error if isinstance(error, BrokenPart) else broken(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = failed.where if failed is not None else f"{frame.filename}:{frame.lineno}"
    if isinstance(error, BrokenPart) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    what = error.what if isinstance(error, VtuneError) else error
    return f"{type(error).__name__}: {what} ({Path(where).name})"


def quickest(times: int, run: Callable[[], object]) -> float:
    """Seconds of the quickest of several runs: on a busy machine the others may have had to wait."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        found.append(time.perf_counter() - began)
    return min(found)


def in_time(seconds: float, most: float, of: str, fix: str) -> str:
    """The time that something took, in words.

    Raises:
        Broken: If it took longer than `most`.
    """
    measured = f"{seconds * 1000:.3g} ms for {of}, {most * 1000:g} ms at most"
    if seconds > most:
        raise Broken(measured, fix)
    return measured


def section_of(model: type[T], values: Mapping[str, Any], fix: str) -> T:
    """A section as a recipe would have it.

    Raises:
        Broken: If the values are wrong; lists each of them in words, with `fix`.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        wrong = ((".".join(map(str, one["loc"])), one["msg"]) for one in error.errors())
        what = "; ".join(f"`{place}`: {message[:1].lower()}{message[1:]}" for place, message in wrong)
        raise Broken(f"the section is wrong: {what}", fix) from None

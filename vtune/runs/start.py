"""Whether a run can start in a folder, and the lock that keeps others out of it."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from vtune.errors import RecipeError
from vtune.files.locks import lock
from vtune.files.writing import check_folder_output, unwritable
from vtune.report.progress import say
from vtune.uses import USES
from vtune.view.place import is_curation

_ELSEWHERE = "wait for it to end, or choose another --out"

LOCK = ".lock"
"""Lock file in a folder in which a process works."""
PATIENCE, PAUSE = 1.0, 0.02
"""Seconds for which a lock that is held is tried again, and between tries; ours. `is_running`, which viewers
call, holds it for a moment."""
PINNED = "eval.json"
"""The file that identifies a run's evaluations."""
UNTRAINED = {"recipe.yaml", "environment.json", PINNED, "logs", LOCK, USES}
"""The files that a start writes before its model is loaded."""


def check_start(out: Path, *, resume: bool) -> None:
    """Check that a run can start in a folder, or resume in it.

    Raises:
        RecipeError: If the folder already holds a run and `resume` was not given, or the other way round, or
            it holds the output of another command.
    """
    check_folder_output(out)
    other = other_work(out)
    if other is not None:
        raise RecipeError(f"{out} holds {other}", fix="choose another --out")
    if holds_run(out) and not resume:
        raise RecipeError(
            f"{out} holds a run already", fix="continue it with --resume, choose another --out, or remove it"
        )
    if resume and not (out / "recipe.yaml").exists():
        raise RecipeError(f"{out} holds no run to resume", fix="start it without --resume")


def other_work(out: Path) -> str | None:
    """What a folder holds instead of a run: a curation or an evaluation; None if it holds neither."""
    if is_curation(out):
        return "a curation"
    evaluated = (out / "suite.yaml").is_file() and not (out / "recipe.yaml").exists()
    begun = any((out / name).exists() for name in ("environment.json", "results.json", "trajectories"))
    return "an evaluation" if evaluated and begun else None


def holds_run(out: Path) -> bool:
    """Whether a folder holds more of a run than what a start leaves that failed before loading its model.

    Even such a start has written both files below: a `recipe.yaml` alone is a file of the user's.
    """
    if not (out / "recipe.yaml").exists():
        return False
    known = (out / "environment.json").exists()
    left = (file.name for file in out.iterdir() if file.name not in UNTRAINED)
    # The lock of a record of the web stays; the record itself counts.
    return not known or not all(name.endswith(LOCK) for name in left)


@contextmanager
def locked(folder: Path, *, fix: str = _ELSEWHERE) -> Iterator[None]:
    """Within the block, no other process can work in this folder, which is created if missing.

    Args:
        folder: A run folder, or a folder within one.
        fix: The remedy if another process already works there.

    Raises:
        RecipeError: If another process already works there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("w")
    except OSError as error:
        raise unwritable(folder, error, "--out") from None
    with file:
        try:
            alone = _lock(file)
        except BlockingIOError:
            raise RecipeError(f"another process is working in {folder}", fix=fix) from None
        if not alone:
            say(
                f"warning: the file system of {folder} has no locks: start nothing else in this folder, "
                "and `vtune watch` cannot tell that a run is going on there"
            )
        yield


def _lock(file: IO[str]) -> bool:
    """`lock`, tried for a while."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return lock(file)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise
        time.sleep(PAUSE)


def is_running(folder: Path) -> bool:
    """Whether a process is working in a folder, see `locked`."""
    try:
        with (folder / LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # There was never a process there, we lack permission, or the file system has no locks.
        return False
    return False

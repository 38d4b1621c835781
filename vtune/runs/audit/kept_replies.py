"""Replies of judges, kept beside a run, so that none is paid for twice."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from vtune.judge.kept import read_kept
from vtune.report.progress import say
from vtune.runs.audit.ways import Way
from vtune.runs.start import locked

FOLDER = "audit-replies"
"""Subfolder of a run folder, with a folder for each judge."""
NAME = "replies.jsonl"


@contextmanager
def kept_replies(run: Path, ways: Sequence[Way]) -> Iterator[tuple[Path | None, ...]]:
    """The files that store the replies of each way's model; None if no model is asked.

    Meanwhile no other audit of the run can ask the same models. Nothing is stored when auditing a trajectory
    file or a read-only folder.

    Raises:
        RecipeError: If another audit of the run is asking one of them.
        DataError: If a file of stored replies cannot be read.
    """
    if not run.is_dir() or not os.access(run, os.W_OK):
        yield (None,) * len(ways)
        return
    folders = [None if way.reward.judge is None else run / FOLDER / _name(way) for way in ways]
    with ExitStack() as stack:
        for folder in filter(None, folders):
            stack.enter_context(locked(folder, fix="wait for the other audit of this run to end"))
            stack.callback(_tidy, folder)
        files = tuple(None if folder is None else folder / NAME for folder in folders)
        # Another model may now have this name; the user can then ask again.
        for file in filter(None, files):
            if count := len(read_kept(file).replies):
                say(f"reusing {count} replies from {file.parent}; remove that folder to ask again")
        yield files


def _tidy(folder: Path) -> None:
    """Remove a folder in which nothing was stored."""
    file = folder / NAME
    if folder.exists() and not (file.exists() and file.stat().st_size):
        shutil.rmtree(folder)
        with suppress(OSError):  # another judge's replies are there
            folder.parent.rmdir()


def _name(way: Way) -> str:
    """Name of a way's model; prefixed with the way's name if the model only judges answers."""
    assert way.reward.judge is not None
    model = way.reward.judge.model
    by = "" if way.only is None or way.asks_model else f"{way.name}-"
    digest = hashlib.sha256(model.encode()).hexdigest()[:8]
    return by + re.sub(r"[^\w.-]+", "-", model)[:80] + f"-{digest}"

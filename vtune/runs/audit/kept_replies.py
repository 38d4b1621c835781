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
"""In a run folder: a folder for each judge."""
NAME = "replies.jsonl"


@contextmanager
def kept_replies(run: Path, ways: Sequence[Way]) -> Iterator[tuple[Path | None, ...]]:
    """The files in which the replies of each way's model are kept; None where no model is asked.

    Within it no other audit of a run asks the same models. Nothing is kept of the audit of a file of
    trajectories, or of a folder that is only read.

    Raises:
        RecipeError: If another audit of the run asks one of them.
        DataError: If a file of kept replies cannot be read.
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
        # Another model may have the name by now: who knows that it has can ask again.
        for file in filter(None, files):
            if count := len(read_kept(file).replies):
                say(f"reusing {count} replies from {file.parent}; remove that folder to ask again")
        yield files


def _tidy(folder: Path) -> None:
    """Leave no folder in which nothing was kept."""
    file = folder / NAME
    if folder.exists() and not (file.exists() and file.stat().st_size):
        shutil.rmtree(folder)
        with suppress(OSError):  # another judge's are there
            folder.parent.rmdir()


def _name(way: Way) -> str:
    """Of the model that a way asks; where it asks one of answers alone, of the way too."""
    assert way.reward.judge is not None
    model = way.reward.judge.model
    by = "" if way.only is None or way.asks_model else f"{way.name}-"
    digest = hashlib.sha256(model.encode()).hexdigest()[:8]
    return by + re.sub(r"[^\w.-]+", "-", model)[:80] + f"-{digest}"

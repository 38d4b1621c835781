"""Checkpoints: a folder that exists is complete."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from vtune.errors import DataError, RunFailed
from vtune.files.json_text import read_record

MANIFEST = "manifest.json"
"""Written last, before the folder gets its name: a checkpoint without it was never finished."""


WRITER = ("PytorchStreamWriter", "inline_container")
"""Words in torch's RuntimeErrors about writing a file; torch has no error class for them."""
CUT_SHORT = "most likely no space is left on the device"
"""What they usually mean; torch drops the error number."""
READER = ("PytorchStreamReader", "inline_container")
"""The same for reading a file."""
NEWEST = "newest"
"""A link to the newest checkpoint: a path for other commands, even before the run has ended."""
BEST = "best"
"""A link to the checkpoint that an evaluation during training found best, if a recipe asks for it."""


class PendingCheckpoint:
    """A checkpoint under a temporary name, `root/.step-<step>.part`, until all of it is on disk.

    Created by all processes together; once it is created, `fill` has returned and the weights may change.

    Args:
        root: The run's `checkpoints` folder.
        step: Updates done so far.
        fill: Writes the contents; called by every process.
        first: Whether this process owns the folder.
        wait: A barrier over all processes.
        mine: Whether this process has written a given file: each process waits until its own files are on
            disk. None: the first process has written all.
        rest: Writes what `fill` has kept in memory.
        background: Whether a thread writes the rest and waits for the disk while training continues.

    Raises:
        RunFailed: If it cannot be written, e.g. because the disk is full; older checkpoints stay intact, as
            they do after any other error of `fill`.
    """

    def __init__(
        self,
        root: Path,
        step: int,
        fill: Callable[[Path], None],
        *,
        first: bool,
        wait: Callable[[], None],
        mine: Callable[[Path], bool] | None = None,
        rest: Callable[[], None] = lambda: None,
        background: bool = False,
    ) -> None:
        self._root, self._step = root, step
        self._first, self._wait = first, wait
        self._mine = mine or (lambda path: first)
        self._rest = rest
        self._final = root / f"step-{step:06d}"
        self._temporary = root / f".step-{step:06d}.part"
        self._written: Future[None] = Future()
        with self._failures():
            if first:
                for left in (*root.glob(".step-*.part"), *root.glob(".step-*.old")):
                    shutil.rmtree(left)
                self._temporary.mkdir(parents=True)
            wait()
            fill(self._temporary)
            if background:
                thread = ThreadPoolExecutor(1, "checkpoint")
                self._written = thread.submit(self._write)
                thread.shutdown(wait=False)
            else:
                self._write()
                self._written.set_result(None)

    @property
    def written(self) -> bool:
        """Whether this process has nothing left to write; writing may have failed."""
        return self._written.done()

    def finish(self, *, keep: int, spared: Callable[[Path], bool] = lambda folder: False) -> Path:
        """Wait for the disk, rename the folder to `root/step-<step>`, and point `root/newest` to it.

        All processes call it together. The oldest checkpoints are removed.

        Args:
            keep: Number of newest checkpoints to keep.
            spared: Whether an older checkpoint is kept too.

        Raises:
            RunFailed: As in the constructor.
        """
        with self._failures():
            self._written.result()
            self._wait()
            if self._first:
                _finish(self._root, self._final, self._temporary, self._step, keep, spared)
            self._wait()
        return self._final

    def _write(self) -> None:
        self._rest()
        for path in self._temporary.rglob("*"):
            if self._mine(path) and path.is_file():
                _to_disk(path)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError, SafetensorError) as error:
            # torch and safetensors raise their own errors when the disk is full.
            if self._first:
                shutil.rmtree(self._temporary, ignore_errors=True)
            if isinstance(error, RuntimeError) and not any(word in str(error) for word in WRITER):
                raise
            why = str(error)
            if isinstance(error, RuntimeError):
                # Its first line gives the place in torch's source, not the operating system's error.
                why = f"{CUT_SHORT} (torch: {why.partition(chr(10))[0]})"
            before = newest_checkpoint(self._root)
            then = (
                "starts over: there is no earlier one" if before is None else f"continues from {before.name}"
            )
            raise RunFailed(
                f"the checkpoint of step {self._step} could not be written: {why}",
                where=str(self._final),
                fix=f"check that there is room (`df -h`), then --resume {then}",
            ) from error


def _finish(
    root: Path, final: Path, temporary: Path, step: int, keep: int, spared: Callable[[Path], bool]
) -> None:
    (temporary / MANIFEST).write_text(json.dumps({"step": step}) + "\n", encoding="utf-8")
    _to_disk(temporary / MANIFEST)
    for folder in (*(path for path in temporary.rglob("*") if path.is_dir()), temporary):
        _to_disk(folder)
    _remove(final)
    temporary.rename(final)
    point(root, NEWEST, final)
    for old in _named(root)[:-keep]:
        if not spared(old):
            _remove(old)


def point(root: Path, name: str, folder: Path) -> None:
    """Point the link `root/name` to a checkpoint in `root`.

    Raises:
        DataError: If it is now a folder, e.g. in a copy that followed links.
    """
    if (root / name).is_dir() and not (root / name).is_symlink():
        raise DataError(
            f"{root / name} is a folder, and was a link to a checkpoint",
            fix=f"the run was copied without its links: compare it with {folder} and remove it",
        )
    link = root / f".{name}.part"
    link.unlink(missing_ok=True)
    link.symlink_to(folder.name)
    link.replace(root / name)
    _to_disk(root)


def _to_disk(path: Path) -> None:
    """Wait until a file, or a folder's list of names, would survive a power loss."""
    there = os.open(path, os.O_RDONLY)
    try:
        os.fsync(there)
    finally:
        os.close(there)


def _remove(folder: Path) -> None:
    """Remove a checkpoint; if that is interrupted, no partial folder is left under its name."""
    if folder.exists():
        dying = folder.with_name(f".{folder.name}.old")
        folder.rename(dying)
        shutil.rmtree(dying)


def newest_checkpoint(root: Path) -> Path | None:
    """The newest complete checkpoint of a run, None if there is none."""
    found = complete(root)
    return found[-1] if found else None


def complete(root: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    return [folder for folder in _named(root) if (folder / MANIFEST).is_file()]


def _named(root: Path) -> list[Path]:
    """Everything named as a run names its checkpoints, oldest first.

    Anything else belongs to the user: a copy like `step-000020-good` is not counted, resumed from or removed.
    """
    return sorted(folder for folder in root.glob("step-*") if re.fullmatch(r"step-\d{6,}", folder.name))


def checkpoint_step(folder: Path) -> int:
    """The number of updates in a checkpoint.

    Raises:
        DataError: If its manifest cannot be read.
    """
    try:
        return int(read_record(folder / MANIFEST, "step", fix="remove this checkpoint")["step"])
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{folder / MANIFEST} cannot be read: {error}", fix="remove this checkpoint"
        ) from None

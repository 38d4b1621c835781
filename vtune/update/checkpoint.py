"""Checkpoints: a folder that exists is complete."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from vtune.errors import DataError, RunFailed
from vtune.update.manifest import MANIFEST, FileFacts, file_facts, write_manifest
from vtune.update.ranks import Ranks

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
        ranks: This process and the others; the first one owns the folder.
        mine: Whether this process has written a given file: each process waits until its own files are on
            disk, and takes their checksums. None: the first process has written all.
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
        ranks: Ranks,
        mine: Callable[[Path], bool] | None = None,
        rest: Callable[[], None] = lambda: None,
        background: bool = False,
    ) -> None:
        self._root, self._step = root, step
        self._ranks = ranks
        self._mine = mine or (lambda path: ranks.first)
        self._rest = rest
        self._final = root / f"step-{step:06d}"
        self._temporary = root / f".step-{step:06d}.part"
        self._written: Future[dict[str, FileFacts]] = Future()
        with self._failures():
            if ranks.first:
                for left in (*root.glob(".step-*.part"), *root.glob(".step-*.old")):
                    shutil.rmtree(left)
                self._temporary.mkdir(parents=True)
            ranks.wait()
            fill(self._temporary)
            if background:
                thread = ThreadPoolExecutor(1, "checkpoint")
                self._written = thread.submit(self._write)
                thread.shutdown(wait=False)
            else:
                self._written.set_result(self._write())

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
            everyone = self._ranks.gather(self._written.result())
            if self._ranks.first:
                files = {name: facts for own in everyone for name, facts in own.items()}
                write_manifest(self._temporary, self._step, files)
                _finish(self._root, self._final, self._temporary, keep, spared)
            self._ranks.wait()
        return self._final

    def _write(self) -> dict[str, FileFacts]:
        self._rest()
        own = [path for path in self._temporary.rglob("*") if self._mine(path) and path.is_file()]
        for path in own:
            _to_disk(path)
        # Mostly still in memory, from being written.
        return {path.relative_to(self._temporary).as_posix(): file_facts(path) for path in own}

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError, SafetensorError) as error:
            # torch and safetensors raise their own errors when the disk is full.
            if self._ranks.first:
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


def _finish(root: Path, final: Path, temporary: Path, keep: int, spared: Callable[[Path], bool]) -> None:
    _to_disk(temporary / MANIFEST)
    for folder in (*(path for path in temporary.rglob("*") if path.is_dir()), temporary):
        _to_disk(folder)
    _remove(final)
    temporary.rename(final)
    point(root, NEWEST, final)
    # Later ones are incomplete, e.g. half a copy: the run would have continued from there. Earlier incomplete
    # ones do not count among those to keep.
    named = _named(root)
    up_to_now = named[: named.index(final) + 1]
    kept = [folder for folder in complete(root) if folder in up_to_now][-keep:]
    for old in up_to_now:
        if old not in kept and not spared(old):
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
    found = (folder for folder in root.glob("step-*") if re.fullmatch(r"step-\d{6,}", folder.name))
    return sorted(found, key=lambda folder: (len(folder.name), folder.name))

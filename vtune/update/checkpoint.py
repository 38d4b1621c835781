"""Checkpoints: a folder that is there is complete."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError

from vtune.errors import DataError, RunFailed
from vtune.files.json_text import read_record

MANIFEST = "manifest.json"
"""Written last, before the folder gets its name: a checkpoint without it was never finished."""


WRITER = ("PytorchStreamWriter", "inline_container")
"""Words of torch's RuntimeErrors that are about a file: it has no class for them."""
NEWEST = "newest"
"""A link to the newest checkpoint: a path that other commands can be given before the run has ended."""
BEST = "best"
"""A link to the checkpoint that an evaluation during training found best, where a recipe asks for it."""


def write_checkpoint(
    root: Path,
    step: int,
    fill: Callable[[Path], None],
    *,
    first: bool,
    wait: Callable[[], None],
    keep: int,
    spared: Callable[[Path], bool] = lambda folder: False,
    mine: Callable[[Path], bool] | None = None,
) -> Path:
    """Write `root/step-<step>` through a temporary name, let `root/newest` point to it, remove the oldest.

    Args:
        root: The run's `checkpoints` folder.
        step: Updates done.
        fill: Writes the content; called by every process.
        first: Whether this process owns the folder.
        wait: A barrier over all processes.
        keep: The newest checkpoints that stay.
        spared: Whether an older one stays, too.
        mine: Whether this process has written a file: each waits until its own are on the disk. None: the
            first has written all.

    Raises:
        RunFailed: If it cannot be written, e.g. because the disk is full; the older ones are intact, as they
            are after any other error of `fill`.
    """
    final = root / f"step-{step:06d}"
    temporary = root / f".step-{step:06d}.part"
    try:
        if first:
            for left in (*root.glob(".step-*.part"), *root.glob(".step-*.old")):
                shutil.rmtree(left)
            temporary.mkdir(parents=True)
        wait()
        fill(temporary)
        for path in temporary.rglob("*"):
            if (first if mine is None else mine(path)) and path.is_file():
                _to_disk(path)
        wait()
        if first:
            _finish(root, final, temporary, step, keep, spared)
        wait()
    except (OSError, RuntimeError, SafetensorError) as error:
        # torch and safetensors have errors of their own for a disk that is full.
        if first:
            shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, RuntimeError) and not any(word in str(error) for word in WRITER):
            raise
        raise RunFailed(
            f"the checkpoint of step {step} could not be written: {error}",
            where=str(final),
            fix="check that there is room (`df -h`), then --resume continues from the one before",
        ) from error
    return final


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
    for old in sorted(root.glob("step-*"))[:-keep]:
        if not spared(old):
            _remove(old)


def point(root: Path, name: str, folder: Path) -> None:
    """Let the link `root/name` point to a checkpoint in `root`."""
    link = root / f".{name}.part"
    link.unlink(missing_ok=True)
    link.symlink_to(folder.name)
    link.replace(root / name)
    _to_disk(root)


def _to_disk(path: Path) -> None:
    """Wait until a file, or the list of names of a folder, outlives a loss of power."""
    there = os.open(path, os.O_RDONLY)
    try:
        os.fsync(there)
    finally:
        os.close(there)


def _remove(folder: Path) -> None:
    """Remove a checkpoint; should that be cut short, no half of it goes by its name."""
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
    return [folder for folder in sorted(root.glob("step-*")) if (folder / MANIFEST).is_file()]


def checkpoint_step(folder: Path) -> int:
    """Updates done in a checkpoint.

    Raises:
        DataError: If its manifest cannot be read.
    """
    try:
        return int(read_record(folder / MANIFEST, "step", fix="remove this checkpoint")["step"])
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{folder / MANIFEST} cannot be read: {error}", fix="remove this checkpoint"
        ) from None

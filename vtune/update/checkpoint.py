"""Checkpoints: a folder that is there is complete."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vtune.errors import DataError

MANIFEST = "manifest.json"
"""Written last, before the folder gets its name: a checkpoint without it was never finished."""


NEWEST = "newest"
"""A link to the newest checkpoint: a path that other commands can be given before the run has ended."""


def write_checkpoint(
    root: Path, step: int, fill: Callable[[Path], None], *, first: bool, wait: Callable[[], None], keep: int
) -> Path:
    """Write `root/step-<step>` through a temporary name, let `root/newest` point to it, remove the oldest.

    Args:
        root: The run's `checkpoints` folder.
        step: Updates done.
        fill: Writes the content; called by every process.
        first: Whether this process owns the folder.
        wait: A barrier over all processes.
        keep: Checkpoints that stay.
    """
    final = root / f"step-{step:06d}"
    temporary = root / f".step-{step:06d}.part"
    if first:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    wait()
    fill(temporary)
    wait()
    if first:
        (temporary / MANIFEST).write_text(json.dumps({"step": step}) + "\n", encoding="utf-8")
        if final.exists():
            shutil.rmtree(final)
        temporary.rename(final)
        link = root / f".{NEWEST}.part"
        link.unlink(missing_ok=True)
        link.symlink_to(final.name)
        link.replace(root / NEWEST)
        for old in sorted(root.glob("step-*"))[:-keep]:
            shutil.rmtree(old)
    wait()
    return final


def newest_checkpoint(root: Path) -> Path | None:
    """The newest complete checkpoint of a run, None if there is none."""
    complete = [folder for folder in sorted(root.glob("step-*")) if (folder / MANIFEST).is_file()]
    return complete[-1] if complete else None


def checkpoint_step(folder: Path) -> int:
    """Updates done in a checkpoint.

    Raises:
        DataError: If its manifest cannot be read.
    """
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return int(manifest["step"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{folder / MANIFEST} cannot be read: {error}", fix="remove this checkpoint"
        ) from None

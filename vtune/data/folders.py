"""Resolves paths found in foreign files: inside the folder that was named, and nowhere else."""

import os
from pathlib import Path

from vtune.errors import DataError


def within(folder: Path, name: str) -> Path:
    """The path that a name in a data file refers to; an absolute one may also lie in the folder.

    Links in the folder are followed, as its owner put them there. The returned path contains no `..`, so that
    the path checked is the path read.

    Raises:
        DataError: If it leaves the folder.
    """
    base = os.path.normpath(folder.absolute())
    path = os.path.normpath(os.path.join(base, name))  # noqa: PTH118
    if not Path(path).is_relative_to(base):
        raise DataError(
            f"the path {name[:200]!r} leaves the folder {folder}",
            fix="point --images at a folder that contains all pictures",
        )
    return Path(path)

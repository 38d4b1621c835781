"""Where a path written by a model leads: always into the workspace, unless it reads system files.

Models name files as they saw them in training: `/mnt/data/image_0.png`, `/tmp/crop.png`, `./output/`.
"""

import os
import re
from pathlib import Path, PurePosixPath

HABITS = ("mnt", "tmp", "home", "data", "var", "content", "workspace", "root", "app", "output", "outputs")
"""Top-level folders that models invent (CodeV repairs the first five of them)."""

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
_PLAIN = re.compile(r"[\w.~ /-]+", re.ASCII)
_INVENTED = re.compile(rf"/({'|'.join(HABITS)})(/|$)")


def into_workspace(path: str, inputs: tuple[str, ...]) -> str:
    """The path to use instead of `path`, relative to the workspace; most paths are returned unchanged.

    Args:
        path: As written in the code.
        inputs: File names of the input images.
    """
    if not _PLAIN.fullmatch(path) or "\n" in path:
        return path
    name = PurePosixPath(path).name
    if name in inputs:
        return name
    if not _INVENTED.match(path):
        return path
    if path.lower().endswith(PICTURES):
        return name
    if PurePosixPath(name).suffix:
        return path
    return "./" if path.endswith("/") else "."


def prefix_into_workspace(prefix: str) -> str:
    """The same for the first part of an f-string, such as `/tmp/crop_`: what follows the last slash."""
    return prefix.rpartition("/")[2] if _PLAIN.fullmatch(prefix) and _INVENTED.match(prefix) else prefix


def for_reading(path: str, inputs: tuple[str, ...]) -> str:
    """Where to read: at the path as written if it exists, else inside the workspace."""
    return path if Path(path).exists() else into_workspace(path, inputs)


def for_writing(path: str, root: str, inputs: tuple[str, ...]) -> str:
    """Where to write a picture; a missing folder is created.

    Args:
        path: As written in the code; if it leads out of the workspace, only its file name is kept.
        root: The workspace, absolute and resolved.
        inputs: File names of the input images.

    Raises:
        PermissionError: If it is the path of an input image.
    """
    absolute = os.path.realpath(path)
    if not absolute.startswith(f"{root}/"):
        absolute = f"{root}/{PurePosixPath(path).name}"
    inside = os.path.relpath(absolute, root)
    if inside in inputs:
        raise PermissionError(f"{inside} is an input image and read-only: save under another name")
    Path(absolute).parent.mkdir(parents=True, exist_ok=True)
    return os.path.relpath(absolute)

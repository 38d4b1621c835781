"""The hub revision of downloaded data, as `hf download --local-dir` records it beside them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

NOTES = Path(".cache/huggingface/download")
"""Folder in a download, with a file `NAME.metadata` for each file, whose first line is the commit."""


def is_note(file: Path, folder: Path) -> bool:
    """Whether a file in a folder is a download's own record, which is not data and contains a date."""
    return file.relative_to(folder).parts[:2] == NOTES.parts[:2]


def revisions(data: Iterable[str]) -> dict[str, list[str]]:
    """Path -> commits of its files, for downloaded data; several if they differ."""
    found = {name: sorted(set(_commits(Path(name)))) for name in data}
    return {name: commits for name, commits in found.items() if commits}


def _commits(path: Path) -> Iterator[str]:
    for root in (path, *path.parents):
        notes = root / NOTES
        if notes.is_dir():
            below = notes / path.relative_to(root)
            files = (
                below.rglob("*.metadata") if path.is_dir() else [below.with_name(f"{below.name}.metadata")]
            )
            yield from filter(None, map(_first_line, files))
            return


def _first_line(path: Path) -> str | None:
    """The commit in a record; None if there is no record, or it was not written by a download."""
    try:
        with path.open(encoding="ascii") as lines:
            line = lines.readline(64).strip()
    except (OSError, UnicodeDecodeError):
        return None
    return line if line and all(letter in "0123456789abcdef" for letter in line) else None

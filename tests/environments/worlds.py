"""Environments of tests: the maze of `tests/own`, and ones that fail in every way."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.conftest import ROOT
from vtune.environments import ENVIRONMENTS
from vtune.environments.environment import Trial
from vtune.schema.sample import Sample
from vtune.uses import forget, use

MAZE = ROOT / "tests/own/maze.py"


@contextmanager
def using(path: Path = MAZE) -> Iterator[None]:
    """Within it the parts of a file are there."""
    files = use([path])
    try:
        yield
    finally:
        forget(files)


def changed(folder: Path, *changes: tuple[str, str]) -> Path:
    """The maze with other lines in it."""
    text = MAZE.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / "maze.py"
    path.write_text(text)
    return path


def trial() -> Trial:
    """The sample and the turns of the maze that is loaded."""
    found = ENVIRONMENTS["maze"].trial
    assert found is not None
    return found


def maze(identity: str = "maze/1") -> Sample:
    """A sample of the maze that is loaded."""
    return replace(trial().sample, id=identity)


def way() -> Sequence[str]:
    """Turns that lead to the goal."""
    return trial().turns

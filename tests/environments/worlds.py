"""Environments for tests: the maze of `tests/own`, and versions that fail in every way."""

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
    """Context in which the parts of a file are loaded."""
    files = use([path])
    try:
        yield
    finally:
        forget(files)


def changed(folder: Path, *changes: tuple[str, str]) -> Path:
    """The maze's file with some lines replaced."""
    text = MAZE.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / "maze.py"
    path.write_text(text)
    return path


def trial() -> Trial:
    """The trial sample and turns of the loaded maze."""
    found = ENVIRONMENTS["maze"].trial
    assert found is not None
    return found


def maze(identity: str = "maze/1") -> Sample:
    """A sample of the loaded maze."""
    return replace(trial().sample, id=identity)


def way() -> Sequence[str]:
    """Turns that lead to the goal."""
    return trial().turns

from pathlib import Path

import pytest

from tests.conftest import Once
from tests.runs.commands import rl, sft, vtune
from tests.warm_sandboxes import warm_sandboxes
from vtune.runs.data.lens import make_lens

__all__ = ["warm_sandboxes"]


@pytest.fixture(scope="session")
def lens(once: Once) -> Path:
    """A folder with level 1 puzzles: 16 for training, six held out, and 32 traces."""
    sizes = {"train": 16, "heldout": 6, "traces": 32}
    return once("lens", lambda folder: make_lens(folder, **sizes, level=1, guessable=0.0, seed=0))


@pytest.fixture(scope="session")
def cold_start(tiny: Path, lens: Path, once: Once) -> Path:
    """The folder of an SFT run: the tiny model writes code and answers, some of them right."""

    def run(out: Path) -> None:
        ended = vtune(*sft(tiny, lens / "traces.parquet", out), "--json")
        assert ended.code == 0, ended.err
        (out / "result.json").write_text(ended.out)

    return once("sft", run)


@pytest.fixture(scope="session")
def schooled(cold_start: Path) -> Path:
    """The weights of the cold start."""
    return cold_start / "checkpoints" / "newest"


@pytest.fixture(scope="session")
def unbroken(schooled: Path, lens: Path, once: Once) -> Path:
    """The folder of an undisturbed `vtune rl`, with which others are compared."""

    def run(out: Path) -> None:
        ended = vtune(*rl(schooled.resolve(), lens / "train.parquet", out), "--json")
        assert ended.code == 0, ended.err
        (out / "result.json").write_text(ended.out)

    return once("rl", run)

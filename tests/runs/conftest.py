from pathlib import Path

import pytest

from tests.runs.commands import sft, vtune
from vtune.runs.data.lens import make_lens


@pytest.fixture(scope="session")
def lens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with puzzles of level 1: 16 to train on, six held out, and 32 traces."""
    folder = tmp_path_factory.mktemp("lens")
    make_lens(folder, train=16, heldout=6, traces=32, level=1, guessable=0.0, seed=0)
    return folder


@pytest.fixture(scope="session")
def cold_start(tiny: Path, lens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an SFT run: the tiny model writes code and answers, some of them right."""
    out = tmp_path_factory.mktemp("runs") / "sft"
    ended = vtune(*sft(tiny, lens / "traces.parquet", out), "--json")
    assert ended.code == 0, ended.err
    (out / "result.json").write_text(ended.out)
    return out


@pytest.fixture(scope="session")
def schooled(cold_start: Path) -> Path:
    """The weights of the cold start."""
    return cold_start / "checkpoints" / "newest"

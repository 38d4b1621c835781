"""The page `recipes/own_task.md`: its files are written and its commands run, on a smaller scale."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import blocks, command_lines
from tests.runs.commands import vtune
from vtune.data.traces import regions
from vtune.errors import DataError, RecipeError
from vtune.runs.data.own_traces import make_box_traces
from vtune.schema.parquet import read_samples, read_trajectories
from vtune.uses import forget, use, used

pytestmark = pytest.mark.train

PAGE = "recipes/own_task.md"
FEWER = {
    "sft": ["--set", "epochs=1", "--set", "update.warmup_steps=1"],
    "rl": ["--set", "steps=1", "--set", "prompts_per_step=2", "--set", "group_size=2"],
}
COUNTS = {"3000": "24", "800": "8", "200": "4"}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's files, and the pictures that they draw. Shared: nothing writes into it."""
    folder = tmp_path_factory.mktemp("page")
    for block in blocks(PAGE):
        first, _, text = block.partition("\n")
        if first.startswith("# ") and first.endswith((".py", ".yaml")):
            (folder / first.removeprefix("# ")).write_text(text)
    draw = (folder / "draw.py").read_text()
    for many, few in COUNTS.items():
        assert many in draw
        draw = draw.replace(many, few)
    (folder / "draw.py").write_text(draw)
    subprocess.run([sys.executable, "draw.py"], cwd=folder, check=True)
    return folder


@pytest.fixture
def folder(drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of that folder; what its files add to vtune is forgotten afterwards."""
    shutil.copytree(drawn, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    before = {file.module for file in used()}
    yield tmp_path
    forget([file for file in used() if file.module not in before])


def test_every_command_of_the_page_works(folder: Path) -> None:
    for words in command_lines(PAGE):
        ended = vtune(*words, *FEWER.get(words[0], []))
        assert ended.code == 0, f"{words}: {ended.err}"
    assert json.loads((folder / "runs/after/results.json").read_text())["samples"] == 4
    (kept,) = (folder / "runs/rl/uses").glob("*tile.py")
    assert kept.read_text() == (folder / "tile.py").read_text()


def test_traces_call_the_custom_tool_at_the_box(folder: Path) -> None:
    use([Path("digit.py"), Path("tile.py")])
    assert vtune("data", "import", "samples", "train.jsonl", "--out", "train.parquet").code == 0
    make_box_traces([Path("train.parquet")], Path("cold.parquet"), prompt="tools")
    samples = list(read_samples(Path("train.parquet")))
    traces = list(read_trajectories(Path("cold.parquet")))
    assert len(traces) == len(samples) == 8
    for sample, trace in zip(samples, traces, strict=True):
        (call,) = trace.calls
        (crop,) = call.crops
        ((_, wanted, _),) = regions(sample)
        x, y = (wanted[0] + wanted[2]) / 2, (wanted[1] + wanted[3]) / 2
        assert crop.bbox[0] <= x < crop.bbox[2]
        assert crop.bbox[1] <= y < crop.bbox[3]
        assert (call.tool, call.status, crop.shown) == ("tile_tool", "ok", len(sample.images))
        assert "tile_tool" in trace.messages[0].content
        assert trace.answer == sample.ground_truth


@pytest.mark.parametrize(
    ("before", "after", "kind", "why"),
    [
        ('return {"tile": TILES[4 * row + column]}', 'return {"tile": "e5"}', DataError, "tile is one of"),
        (
            "opened=opened,",
            "opened=opened, recipe=Needs,",
            RecipeError,
            "traces have no settings for tile_tool, which needs size",
        ),
    ],
    ids=["it refuses the region", "it needs settings"],
)
def test_a_tool_that_cannot_look_is_an_error(
    before: str, after: str, kind: type[Exception], why: str, folder: Path
) -> None:
    text = Path("tile.py").read_text()
    assert before in text
    needs = "from vtune.sections import Strict\n\n\nclass Needs(Strict):\n    size: int\n\n\nTOOLS.add("
    Path("tile.py").write_text(text.replace(before, after).replace("TOOLS.add(", needs))
    use([Path("digit.py"), Path("tile.py")])
    assert vtune("data", "import", "samples", "train.jsonl", "--out", "train.parquet").code == 0
    with pytest.raises(kind, match=why):
        make_box_traces([Path("train.parquet")], Path("cold.parquet"), prompt="plain")
    assert not Path("cold.parquet").exists()

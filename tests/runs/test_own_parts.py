"""The whole way with parts of one's own: format, verifier, tool and suite, a file and a line each."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.reward.serving import serving
from tests.runs.commands import setting, vtune
from vtune.data.formats.table import FORMATS
from vtune.schema.parquet import read_samples, read_trajectories
from vtune.uses import forget, use, used

SIZES = setting(
    seed=0,
    steps=1,
    prompts_per_step=2,
    group_size=2,
    update__threads=1,
    update__warmup_steps=0,
    trajectories_every=1,
    reward__tool=0.0,
)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    forget(used())


def scratch(folder: Path, tiny: Path) -> Path:
    """A folder of a user's, outside of the package: three parts, two questions, a recipe and a suite."""
    for name in ("anls.py", "rotate.py", "lines.py"):
        shutil.copy(ROOT / "tests/own" / name, folder)
    files = use([folder / "lines.py"])
    FORMATS["lines"].specimen(folder)  # type: ignore[misc]
    forget(files)
    lines = (ROOT / "recipes/rl/codev-tiny.yaml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("model:", "data:"))]
    own = "uses: [anls.py, rotate.py]\ntools: {rotate_tool: {}}"
    recipe = "\n".join([own, f"model: {tiny}", f"data: [{folder}/train.parquet]", *kept])
    (folder / "mine.yaml").write_text(f"{recipe}\n")
    lines = (ROOT / "eval_suites/lens.yaml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("data:", "format:", "offers:"))]
    own = f"uses: [lines.py]\ndata: [{folder}/questions.tsv]\nformat: lines\noffers: []"
    (folder / "suite.yaml").write_text("\n".join([own, *kept]) + "\n")
    return folder


def test_own_parts_go_through_import_rl_a_service_and_a_suite(tiny: Path, tmp_path: Path) -> None:
    here = scratch(tmp_path, tiny)
    brought = [word for name in ("lines.py", "anls.py", "rotate.py") for word in ("--uses", here / name)]
    offered = ("--verifier", "anls", "--tools", "rotate_tool")
    rows = (here / "questions.tsv", "--out", here / "train.parquet")
    ended = vtune("data", "import", "lines", *rows, *offered, *brought)
    assert ended.code == 0, ended.err
    assert {(row.verifier, row.tools) for row in read_samples(here / "train.parquet")} == {
        ("anls", ("rotate_tool",))
    }
    forget(used())

    run = ("rl", "--recipe", here / "mine.yaml", "--out", here / "run", *SIZES)
    asked = {"token_env": None, "deadline_s": 60.0}
    with serving() as other:  # it knows nothing of the files
        service = setting(reward__service=json.dumps({"urls": [other.url], **asked}))
        ended = vtune(*run, *service)
        assert ended.code == 2
        assert "has not loaded 'anls.py'" in ended.err
    with serving("--recipe", str(here / "mine.yaml")) as served:
        assert "anls" in served.facts["verifiers"]
        service = setting(reward__service=json.dumps({"urls": [served.url], **asked}))
        ended = vtune(*run, *service)
        assert ended.code == 0, ended.err
    (file,) = (here / "run/trajectories").glob("step-*.parquet")
    found = list(read_trajectories(file))
    assert len(found) == 4
    assert all(t.reward is not None and t.reward.total is not None for t in found)
    assert {path.name for path in (here / "run/uses").iterdir()} == {"anls.py", "rotate.py"}
    assert "uses anls.py" in vtune("report", here / "run").out
    forget(used())

    words = ("--suite", here / "suite.yaml", "--model", tiny, "--out", here / "eval", *setting(threads=1))
    ended = vtune("eval", *words)
    assert ended.code == 0, ended.err
    results = json.loads((here / "eval/results.json").read_text())
    assert results["samples"] == 2
    assert list(results["environment"]["uses"]) == ["lines.py"]

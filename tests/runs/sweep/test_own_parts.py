"""Custom parts in a sweep: every run and evaluation has them, and resumes with no others."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.runs.commands import Ended, setting, vtune
from tests.runs.sweep.test_sweep import inside
from vtune.runs.sweep.runs import run_sweep
from vtune.schema.parquet import read_samples, read_trajectories, write_samples
from vtune.uses import forget, used

OWN = ROOT / "tests/own"
FILES = ("brief.py", "anls.py", "rotate.py")


pytestmark = pytest.mark.usefixtures("forgetting")


@pytest.fixture
def here(tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep with a part of the reward, a verifier and a tool, over a suite with a scorer."""

    def afresh(*given: Any, **more: Any) -> object:
        forget(used())  # as a new process starts
        return inside(*given, **more)

    monkeypatch.setitem(run_sweep.__kwdefaults__, "start", afresh)
    for name in (*FILES, "worst.py"):
        shutil.copy(OWN / name, tmp_path)
    rows = list(read_samples(lens / "train.parquet"))
    own_rows = [replace(row, verifier="anls", tools=("rotate_tool",)) for row in rows]
    write_samples(tmp_path / "train.parquet", own_rows)
    lines = (ROOT / "eval_suites/lens.yaml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("data:", "scorer:"))]
    own = ["uses: [worst.py]", f"data: [{lens / 'heldout.parquet'}]", "scorer: worst"]
    (tmp_path / "suite.yaml").write_text("\n".join([*own, *kept]) + "\n")
    sweep = {
        "uses": list(FILES),
        "seeds": [3],
        "last_steps": 1,
        "variants": {"plain": {}, "short": {"reward.parts": {"brief": {"weight": 0.2, "words": 60}}}},
        "differences": [["short", "plain"]],
        "held_out": [
            {"suite": str(tmp_path / "suite.yaml"), "settings": {"threads": 1, "rollout.max_new_tokens": 8}}
        ],
    }
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    return tmp_path


def swept(here: Path, tiny: Path, lens: Path, *more: str) -> Ended:
    given = setting(
        model=tiny,
        data=f"[{here / 'train.parquet'}]",
        tools="{rotate_tool: {}}",
        reward__tool=0.0,
        trajectories_every=1,
        steps=1,
        prompts_per_step=1,
        group_size=2,
        rollout__max_new_tokens=8,
        update__threads=1,
    )
    words = ("rl", "--recipe", "codev-tiny", "--sweep", here / "sweep.yaml", "--out", here / "out")
    ended = vtune(*words, *given, "--json", *more)
    forget(used())
    return ended


@pytest.mark.train
def test_every_run_of_a_sweep_keeps_custom_parts_and_a_resumed_sweep_accepts_no_others(
    here: Path, tiny: Path, lens: Path
) -> None:
    ended = swept(here, tiny, lens)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["unfinished"] == []
    out = here / "out"
    for run in ("plain/seed-3", "short/seed-3"):
        assert set(json.loads((out / run / "environment.json").read_text())["uses"]) == set(FILES)
        for file in FILES:
            assert (out / run / "uses" / file).read_bytes() == (OWN / file).read_bytes()
        (written,) = (out / run / "trajectories").glob("step-*.parquet")
        assert all(done.reward and done.reward.total is not None for done in read_trajectories(written))
        results = json.loads((out / run / "eval/suite/results.json").read_text())
        assert set(results["environment"]["uses"]) == {*FILES, "worst.py"}
        assert "uses brief.py, SHA-256" in vtune("report", out / run).out
    assert "reward_brief" in (out / "short/seed-3/metrics.jsonl").read_text()
    assert yaml.safe_load((out / "sweep.yaml").read_text())["uses"] == [f"uses/{file}" for file in FILES]
    assert (out / "uses/brief.py").read_bytes() == (OWN / "brief.py").read_bytes()

    (out / "short/seed-3/eval/suite/results.json").unlink()
    again = swept(here, tiny, lens, "--resume", "--only", "short")
    assert again.code == 0, again.err

    for name, folder in (("anls.py", "out/plain/seed-3"), ("worst.py", "out/plain/seed-3/eval/suite")):
        before = (here / name).read_text()
        (here / name).write_text(f"{before}\n# changed\n")
        other = swept(here, tiny, lens, "--resume")
        assert other.code == 2
        assert f"{name} is not the file of the user's own parts that {here / folder} began with" in other.err
        (here / name).write_text(before)


def test_a_variant_may_not_take_the_folder_of_the_copies(here: Path, tiny: Path, lens: Path) -> None:
    text = (here / "sweep.yaml").read_text().replace("plain", "uses")
    (here / "sweep.yaml").write_text(text)
    ended = swept(here, tiny, lens)
    assert (ended.code, "variant 'uses' is not a valid folder name here" in ended.err) == (2, True)

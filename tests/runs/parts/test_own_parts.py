"""End to end with custom parts: format, verifier, tool and suite, one file and one line per part."""

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.reward.serving import serving
from tests.rollout.scripted import ScriptedEngine
from tests.runs.commands import rl, setting, vtune
from tests.scripted import draw_with
from vtune.data.formats.table import FORMATS
from vtune.errors import RecipeError
from vtune.metrics.log import read_metrics
from vtune.rollout.engine import Completion, Request
from vtune.runs.kept_uses import check_uses
from vtune.schema.parquet import read_samples, read_trajectories
from vtune.schema.trajectory import Outcome
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


pytestmark = pytest.mark.usefixtures("forgetting")


OFFICIAL = """
from vtune.data.formats.table import OfficialScorer

def asked(replies):
    return {sample.id: answer for sample, answer in replies}

SCORER = OfficialScorer(asked, dict, lambda sample: sample.id, lambda content: {})
FORMATS.add("""
"""The script that scores a custom format."""


def scratch(folder: Path, tiny: Path) -> Path:
    """A user's folder outside the package: three parts, two questions, a recipe and a suite."""
    for name in ("anls.py", "rotate.py", "lines.py"):
        shutil.copy(ROOT / "tests/own" / name, folder)
    text = (
        (folder / "lines.py").read_text().replace("specimen=specimen)", "specimen=specimen, official=SCORER)")
    )
    (folder / "lines.py").write_text(text.replace("FORMATS.add(", OFFICIAL))
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


def test_custom_parts_work_in_import_rl_a_service_and_a_suite(tiny: Path, tmp_path: Path) -> None:
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
    with serving() as other:  # it does not have the files
        service = setting(reward__service=json.dumps({"urls": [other.url], **asked}))
        ended = vtune(*run, *service)
        assert ended.code == 2
        assert "has not loaded 'anls.py'" in ended.err
        assert "fix  start it with the --recipe of the run" in ended.err
        assert "token_env" not in ended.err
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
    forget(used())
    ended = vtune("scores", "export", here / "eval", "--out", here / "replies.json")
    assert ended.code == 0, ended.err
    assert len(json.loads((here / "replies.json").read_text())) == 2


class Walker(ScriptedEngine):
    """Half of each group walks to the goal, the others into a wall."""

    async def generate(self, request: Request) -> Completion:
        *_, rollout, turn = request.key
        move = ("up", "up", "up") if rollout % 2 else ("right", "right", "down")
        return await ScriptedEngine(self._chat, [f"<move>{move[turn]}</move>"]).generate(request)


def mazes(folder: Path) -> Path:
    """Two mazes as a user writes them: JSON lines that name their environment."""
    lines = [
        {
            "data_source": "maze",
            "prompt": "Go to the red square.",
            "environment": "maze",
            "reward_model": {"ground_truth": maze, "verifier": "environment_reward"},
        }
        for maze in ("S../#.G", "S../..G")
    ]
    file = folder / "mazes.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


def test_a_custom_environment_works_in_import_rl_a_service_and_a_suite(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = lambda policy, max_batch, **_: Walker(policy.chat, ["never"])  # noqa: E731
    draw_with(monkeypatch, engine)
    here = scratch(tmp_path, tiny)
    shutil.copy(ROOT / "tests/own/maze.py", here)
    data = here / "train.parquet"
    words = ("data", "import", "samples", mazes(here), "--out", data)
    ended = vtune(*words)
    assert ended.code == 2
    assert "To add your own, list its file under `uses: [./mine.py]`" in ended.err
    ended = vtune(*words, "--uses", here / "maze.py")
    assert ended.code == 0, ended.err
    forget(used())
    assert "there is no environment 'maze'" in vtune("data", "validate", data).out
    assert vtune("data", "validate", data, "--uses", here / "maze.py").code == 0
    forget(used())
    assert {row.environment for row in read_samples(data)} == {"maze"}
    limits = setting(rollout__max_tokens=2000, rollout__max_turns=3, rollout__prompt="plain")
    run = ("rl", "--recipe", here / "mine.yaml", "--out", here / "run", *SIZES, *limits)
    ended = vtune(*run)
    assert ended.code == 2
    assert "unknown environment 'maze'" in ended.err
    forget(used())
    own = ("--set", f"uses=[{here}/maze.py]", "--set", "tools=null")
    with serving() as served:  # the outcome is sent along, so the service needs no file
        asked = json.dumps({"urls": [served.url], "token_env": None, "deadline_s": 60.0})
        ended = vtune(*run, *own, *setting(reward__service=asked))
        assert ended.code == 0, ended.err
    (file,) = (here / "run/trajectories").glob("step-*.parquet")
    found = list(read_trajectories(file))
    assert sorted(t.outcome.score for t in found if t.outcome is not None) == [0.0, 0.0, 1.0, 1.0]
    for one in found:
        assert one.reward is not None
        assert one.outcome is not None
        assert one.reward.accuracy == one.outcome.score
    assert all(
        ((t.advantage or 0.0) > 0) == (t.outcome == Outcome(1.0, "at the goal after 3 moves")) for t in found
    )
    assert {path.name for path in (here / "run/uses").iterdir()} == {"maze.py"}
    assert {(t.needs_look, *t.tool_scores) for t in found} == {(False, None, None), (False, None, None, None)}
    every = vtune("show", here / "run").out
    assert "right" in every
    assert "faithful" not in every
    assert "0 of 4" in vtune("show", here / "run", "--where", "faithful:no").out
    ended = vtune("faithfulness", here / "run")
    assert ended.code == 2
    assert "what the policy does in environment `maze` is an act" in ended.err
    forget(used())

    lines = (ROOT / "eval_suites/lens.yaml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("data:", "format:", "offers:"))]
    suite = f"uses: [maze.py]\ndata: [{data}]\nformat: samples\noffers: null"
    (here / "suite.yaml").write_text("\n".join([suite, *kept]) + "\n")
    words = ("--suite", here / "suite.yaml", "--model", tiny, "--out", here / "eval")
    ended = vtune("eval", *words, *limits, *setting(threads=1, rollouts=2))
    assert ended.code == 0, ended.err
    results = json.loads((here / "eval/results.json").read_text())
    assert results["score"]["score"] == 0.5


@pytest.mark.train
def test_a_custom_loss_trains_only_with_its_file(schooled: Path, lens: Path, tmp_path: Path) -> None:
    text = (ROOT / "tests/own/pushes.py").read_text()
    (tmp_path / "mine.py").write_text(f"# As it began.\n{text}")
    loss = "{algorithm: pushes, fade: 0.5, aggregation: token_mean, kl_weight: 0.0}"
    words = rl(schooled.resolve(), lens / "train.parquet", tmp_path / "run")
    words += setting(uses=f"[{tmp_path / 'mine.py'}]", loss=loss, steps=1)

    ended = vtune(*words, *setting(loss__fade=-1), "--dry-run")
    assert ended.code == 2
    assert "`loss.fade`: input should be greater than or equal to 0" in ended.err
    forget(used())

    ended = vtune(*words)
    assert ended.code == 0, ended.err
    (line,) = [line for line in read_metrics(tmp_path / "run/metrics.jsonl") if line.source == "all"]
    assert line.values["loss"] != 0
    assert "clip_share" not in line.values

    began = json.loads((tmp_path / "run/environment.json").read_text())["uses"]
    assert list(began) == ["mine.py"]
    (tmp_path / "mine.py").write_text(text)
    forget(used())
    use([tmp_path / "mine.py"])
    with pytest.raises(RecipeError, match=r"mine\.py is not the file"):
        check_uses(began, tmp_path / "run")


def test_a_suite_uses_a_custom_scorer_and_a_custom_style_through_its_agent(
    tiny: Path, tmp_path: Path
) -> None:
    here = scratch(tmp_path, tiny)
    for name in ("worst.py", "terse.py"):
        shutil.copy(ROOT / "tests/own" / name, here)
    text = (here / "suite.yaml").read_text().replace("uses: [lines.py]", "uses: [lines.py, worst.py]")
    lines = [line for line in text.splitlines() if not line.startswith("scorer:")]
    (here / "suite.yaml").write_text("\n".join([*lines, "scorer: worst", ""]))
    agent = (ROOT / "recipes/agents/lens-tiny.yaml").read_text().replace("prompt: plain", "prompt: terse")
    agent = agent.replace("offers: null", "offers: []")
    (here / "mine.yaml").write_text(f"uses: [terse.py]\n{agent}")
    words = ("eval", "--suite", here / "suite.yaml", "--model", tiny, *setting(threads=1))
    ended = vtune(*words, "--agent", here / "mine.yaml", "--out", here / "eval")
    assert ended.code == 0, ended.err
    results = json.loads((here / "eval/results.json").read_text())
    assert results["suite"]["scorer"] == "worst"
    assert set(results["environment"]["uses"]) == {"lines.py", "worst.py", "terse.py"}
    for done in read_trajectories(here / "eval/trajectories.parquet"):
        assert "Answer in at most five words." in done.messages[0].content

    (here / "suite.yaml").write_text("\n".join([*lines, "scorer: worst", "rollout: {prompt: terse}", ""]))
    ended = vtune(*words, "--dry-run")
    assert ended.code == 2
    assert "the suite has a `rollout` of its own, but not images, call_images" in ended.err
    assert "vtune recipes copy agent/lens-tiny" in ended.err

import gzip
import io
import json
import re
import shutil
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.rollout.scripted import ScriptedEngine
from tests.runs.commands import numbers, python, rl, same_weights, setting, vtune
from tests.scripted import draw_with
from vtune.metrics.log import read_metrics
from vtune.rollout.engine import Completion, Request
from vtune.runs.train.learning import updates_of
from vtune.runs.train.step_row import speed_row
from vtune.schema.box import iou
from vtune.schema.parquet import read_samples, read_trajectories
from vtune.schema.source_names import ALL
from vtune.schema.trajectory import Trajectory
from vtune.update.stats import StepStats

pytestmark = pytest.mark.train

KILLED = """
import os, signal
from vtune.cli.main import main
from vtune.runs.train.dynamic_sampling import DynamicSampling

of, calls = DynamicSampling.of, []

async def drawn_and_dead(self, step):
    found = await of(self, step)
    calls.append(step)
    if len(calls) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return found

DynamicSampling.of = drawn_and_dead
main()
"""
"""`vtune`, killed in its fourth step, between the rollout and the update."""


STATS = StepStats(
    loss=0.0,
    grad_norm=1.0,
    skipped=False,
    learning_rate=1e-3,
    tokens=400,
    flops=0.0,
    entropy=0.1,
    kl=None,
    clip_share=None,
    mismatch=None,
    mismatch_mean=None,
    mismatch_kl=None,
    truncated_share=None,
    grad_norms={},
)


@dataclass(frozen=True)
class Runs:
    words: list[str]
    """Words of the run that was killed and resumed."""
    data: Path
    """Its own copy of the data."""
    unbroken: Path
    killed: Path
    after_the_kill: dict[str, object]
    """What it had left behind."""
    resumed_code: int
    resumed_err: str


@pytest.fixture(scope="module")
def runs(schooled: Path, unbroken: Path, lens: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("rl")
    killed = folder / "killed"
    data = Path(shutil.copy(lens / "train.parquet", folder))  # a test changes it
    words = rl(schooled.resolve(), data, killed)
    ended = python(KILLED, *words)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    left = {
        "checkpoints": sorted(path.name for path in (killed / "checkpoints").glob("step-*")),
        "steps": sorted({step for step, _ in numbers(killed)}),
        "trajectories": sorted(path.name for path in (killed / "trajectories").iterdir()),
    }
    for stale in ("step-000003", "step-000007", "step-000007-rank-1"):
        (killed / f"trajectories/{stale}.parquet").write_text("of a run that went on, and was forgotten")
    # A profile does not change the results of a run.
    resumed = vtune(*words, "--resume", "--profile", "4")
    return Runs(words, data, unbroken, killed, left, resumed.code, resumed.err)


def test_the_kill_came_mid_step_with_unsaved_work(runs: Runs) -> None:
    assert runs.after_the_kill == {
        "checkpoints": ["step-000002"],
        "steps": [0, 1, 2],
        "trajectories": [f"step-00000{step}.parquet" for step in range(3)],
    }


def test_a_killed_run_ends_with_the_weights_of_an_unbroken_one(runs: Runs, schooled: Path) -> None:
    assert runs.resumed_code == 0, runs.resumed_err
    first, second = (run / "checkpoints/step-000004" for run in (runs.unbroken, runs.killed))
    assert same_weights(first, second)
    # They have learnt something, so the equality is meaningful.
    assert not same_weights(first, schooled)
    assert not same_weights(first, runs.unbroken / "checkpoints/step-000002")


def test_a_killed_run_ends_with_the_numbers_and_the_trajectories_of_an_unbroken_one(runs: Runs) -> None:
    assert numbers(runs.killed) == numbers(runs.unbroken)
    assert {path.name for path in (runs.killed / "trajectories").glob("*.parquet")} == {
        f"step-00000{step}.parquet" for step in range(4)
    }
    for step in range(4):
        first, second = (stored(run, step) for run in (runs.unbroken, runs.killed))
        assert [t.token_ids for t in first] == [t.token_ids for t in second]
        assert [t.reward for t in first] == [t.reward for t in second]


def test_a_profile_shows_the_phases_of_its_step_and_no_other(runs: Runs) -> None:
    written = sorted(path.name for path in (runs.killed / "profile").iterdir())
    assert written == ["step-000004-rank-0.json.gz", "step-000004-rank-0.txt"]
    assert "profile of step 4" in runs.resumed_err
    with gzip.open(runs.killed / "profile" / written[0]) as file:
        events = json.load(file)["traceEvents"]
    took = {event["name"]: event for event in events if event.get("ph") == "X"}
    assert {"rollout", "update", "aten::mm"} <= set(took)
    assert took["rollout"]["ts"] + took["rollout"]["dur"] <= took["update"]["ts"]
    assert "aten::mm" in (runs.killed / "profile" / written[1]).read_text()


def test_the_speed_of_a_step_is_reported_and_mfu_if_the_peak_is_known(runs: Runs) -> None:
    for line in read_metrics(runs.unbroken / "metrics.jsonl"):
        if line.source == ALL:
            told = line.values
            assert told["tokens_per_second_per_gpu"] == told["tokens_per_second"] > 0
            assert (
                0
                <= told["idle_share"]
                == (told["seconds_sandbox"] + told["seconds_reward"]) / told["seconds"]
                < 1
            )
            assert "mfu" not in told
            assert 0.1 < told["memory_gib"] < 100
    update = replace(STATS, flops=3e15)
    row = speed_row([update, update], 100.0, 4.0, processes=8, peak=8e15)
    assert row == {"tokens_per_second": 100.0, "tokens_per_second_per_gpu": 12.5, "mfu": 6e15 / (4.0 * 8e15)}


def stored(run: Path, step: int) -> list[Trajectory]:
    return list(read_trajectories(run / "trajectories" / f"step-{step:06d}.parquet"))


def test_metrics_of_a_run_match_its_trajectories(runs: Runs) -> None:
    told = numbers(runs.unbroken)
    assert {source for _, source in told} == {"all", "lens"}
    result = json.loads((runs.unbroken / "result.json").read_text())
    assert result["steps"] == 4
    assert result["last"]["reward"] == told[3, "all"]["reward"]
    assert Path(result["model"]) == runs.unbroken / "checkpoints/step-000004"
    for step in range(4):
        found, row = stored(runs.unbroken, step), told[step, "all"]
        assert row["trajectories"] == len(found) == 8
        totals = [t.reward.total for t in found if t.reward and t.reward.total is not None]
        assert row["reward"] == pytest.approx(np.mean(totals), abs=1e-6)
        assert row["tool_calls"] == np.mean([len(t.calls) for t in found])
        # Strictly on-policy: training uses exactly what was generated.
        assert row["mismatch"] < 1e-4
        assert row["clip_share"] == 0
        assert {t.policy_version for t in found} == {step}
        assert len({(t.group, t.rollout) for t in found}) == 8
        for group in {t.group for t in found}:
            assert sum(t.advantage or 0 for t in found if t.group == group) == pytest.approx(0, abs=1e-6)
    everything = [t for step in range(4) for t in stored(runs.unbroken, step)]
    assert any(call.crops for t in everything for call in t.calls)
    assert len({t.reward.total for t in everything if t.reward}) > 2


def test_the_weights_have_moved_for_all_but_the_first_update_of_a_step(runs: Runs) -> None:
    found = [t for t in stored(runs.unbroken, 3) if t.advantage is not None]
    first, second = updates_of(found, 2)
    assert {off for item in first for off in item.off_policy} == {False}
    assert {off for item in second for off in item.off_policy} == {True}


def test_the_weights_have_moved_since_generation_by_older_ones(runs: Runs) -> None:
    found = [t for t in stored(runs.unbroken, 3) if t.advantage is not None]
    older = [replace(t, policy_version=t.policy_version + 1) for t in found]
    assert {off for item in updates_of(found, 1)[0] for off in item.off_policy} == {False}
    assert {off for item in updates_of(older, 1)[0] for off in item.off_policy} == {True}

    def newer_at_the_end(t: Trajectory) -> Trajectory:
        """New weights arrived in the middle: they generated the second half of the sampled tokens."""
        sampled = [number for number, counts in enumerate(t.loss_mask) if counts]
        late = set(sampled[len(sampled) // 2 :])
        versions = [
            t.policy_version if number in late else version
            for number, version in enumerate(t.weight_versions)
        ]
        return replace(t, weight_versions=tuple(versions))

    for item in updates_of([newer_at_the_end(t) for t in older], 1)[0]:
        half = item.counted // 2
        assert list(item.off_policy) == [True] * half + [False] * (item.counted - half)


def test_every_step_uses_the_next_samples(runs: Runs) -> None:
    asked = [{t.sample_id for t in stored(runs.unbroken, step)} for step in range(4)]
    assert [len(ids) for ids in asked] == [2] * 4
    assert len(set.union(*asked)) == 8


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (setting(update__learning_rate=0.1), r"update\.learning_rate \(was \S+, now 0\.1\)"),
        (
            setting(reward__tool=0.0, seed=5),
            r"seed \(was \d, now 5\), reward\.tool \(was \S+, now 0\.0\)",
        ),
    ],
)
def test_resuming_with_another_recipe_names_the_keys(runs: Runs, change: list[str], key: str) -> None:
    ended = vtune(*runs.words, *change, "--resume")
    assert ended.code == 2
    assert re.search(rf"differs in {key}\n", ended.err), ended.err
    assert str(runs.killed / "recipe.yaml") in ended.err


def test_resuming_with_changed_data_is_refused(runs: Runs, lens: Path) -> None:
    before = runs.data.read_bytes()
    try:
        shutil.copy(lens / "heldout.parquet", runs.data)
        ended = vtune(*runs.words, "--resume")
    finally:
        runs.data.write_bytes(before)
    assert ended.code == 2
    assert f"{runs.data} is not the file that {runs.killed} began with" in ended.err


def test_a_folder_with_a_run_is_refused_for_a_new_one(runs: Runs) -> None:
    before = numbers(runs.killed)
    ended = vtune(*runs.words)
    assert ended.code == 2
    assert f"{runs.killed} holds a run already" in ended.err
    assert "--resume" in ended.err
    assert numbers(runs.killed) == before


def test_there_is_nothing_to_resume_in_an_empty_folder(schooled: Path, lens: Path, tmp_path: Path) -> None:
    ended = vtune(*rl(schooled, lens / "train.parquet", tmp_path / "new"), "--resume")
    assert ended.code == 2
    assert "holds no run to resume" in ended.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (setting(updates_per_step=3), "8 rollouts per process do not split into"),
        (setting(group_size=1), "`group_size`"),
        (setting(rollout__temperature=0.7), "train at 1.0"),
        (setting(model="/nowhere/model"), "there is no model folder /nowhere/model"),
    ],
)
def test_invalid_sizes_and_models_are_refused_before_the_start(
    schooled: Path, lens: Path, tmp_path: Path, change: list[str], what: str
) -> None:
    ended = vtune(*rl(schooled, lens / "train.parquet", tmp_path / "run", *change))
    assert ended.code == 2
    assert what in ended.err
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def photos(coco_mini: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples about real photographs."""
    out = tmp_path_factory.mktemp("coco") / "coco.parquet"
    where = ["--instances", coco_mini / "instances.json", "--images", coco_mini / "images"]
    ended = vtune("data", "make", "coco", *where, "--out", out, "--limit", "12")
    assert ended.code == 0, ended.err
    return out


def test_photographs_go_through_rl_from_end_to_end(schooled: Path, photos: Path, tmp_path: Path) -> None:
    ended = vtune(*rl(schooled, photos, tmp_path / "run", *setting(steps=3, rollout__max_tokens=500)))
    assert ended.code == 0, ended.err
    asked = {sample.id: sample for sample in read_samples(photos)}
    found = [t for step in range(3) for t in stored(tmp_path / "run", step)]
    assert len(found) == 24
    for trajectory in found:
        assert trajectory.images[0].data == asked[trajectory.sample_id].images[0].data
        assert trajectory.reward is not None
        assert trajectory.reward.total is not None
        assert any(trajectory.loss_mask)
    assert {source for _, source in numbers(tmp_path / "run")} == {"all", "coco_region", "coco_count"}


class Looker(ScriptedEngine):
    """Crops the region that the question names, then answers A, B, C and D in turn."""

    async def generate(self, request: Request) -> Completion:
        *_, rollout, turn = request.key
        asked = self._chat.tokenizer.decode(list(request.token_ids))
        found = re.search(r"region \[([\d, ]+)\]", asked)
        box = found[1] if found else "0, 0, 60, 60"
        look = f'<think>I look.\n<code>\nimage.crop(({box})).save("look.png")\n</code>'
        answer = f"<think>I see it.</think><answer>{'ABCD'[rollout]}</answer>"
        return await ScriptedEngine(self._chat, [answer if turn else look]).generate(request)


def test_crops_of_photographs_by_their_evidence_earn_the_full_evidence_reward(
    tiny: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the words are made up: sandbox, reward and update are the usual ones."""
    draw_with(
        monkeypatch,
        lambda policy, **_: Looker(policy.chat, ["never said"]),
    )
    settings = setting(
        steps=3, rollout__prompt="codev", rollout__max_new_tokens=400, rollout__max_tokens=4000
    )
    ended = vtune(*rl(tiny, photos, tmp_path / "run", *settings))
    assert ended.code == 0, ended.err
    asked = {sample.id: sample for sample in read_samples(photos)}
    found = [t for step in range(3) for t in stored(tmp_path / "run", step)]
    regions = [t for t in found if t.source == "coco_region"]
    assert len(found) == 24
    assert len(regions) in (8, 12, 16)
    for trajectory in regions:
        sample = asked[trajectory.sample_id]
        (call,) = trajectory.calls
        (crop,) = call.crops
        assert iou(crop.bbox, sample.evidence[0].bbox) > 0.9
        assert trajectory.tool_scores == (1.0,)
        assert trajectory.reward is not None
        assert (trajectory.reward.tool, trajectory.reward.format) == (1.0, 1.0)
        assert trajectory.reward.accuracy == (trajectory.answer == sample.ground_truth)
        assert crop.shown == 1
        whole, shown = (
            np.asarray(Image.open(io.BytesIO(picture.data or b"")).convert("RGB"))
            for picture in trajectory.images
        )
        x0, y0, x1, y1 = (round(side) for side in crop.bbox)
        assert np.array_equal(shown, whole[y0:y1, x0:x1])
    # One in four is right: there is something to learn from.
    assert {t.advantage for t in regions} == {0.75, -0.25}

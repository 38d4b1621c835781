import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

import vtune.runs.agent.engines as vtune_engines
from tests.judge.server import serve
from tests.reward.build import sample
from tests.runs.commands import evaluation, setting, vtune
from tests.runs.habits import NUMBERS, Habits
from vtune.schema.parquet import fingerprint, read_samples, read_trajectories, write_samples
from vtune.schema.trajectory import Trajectory


@pytest.fixture
def habits(lens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the model's engine with the policy `Habits`."""
    samples = list(read_samples(lens / "heldout.parquet"))
    monkeypatch.setattr(vtune_engines, "TransformersEngine", lambda policy, **_: Habits(policy.chat, samples))


def stored(out: Path) -> list[Trajectory]:
    return list(read_trajectories(out / "trajectories.parquet"))


def test_an_evaluation_with_an_unreachable_judge_ends_before_it_begins(tiny: Path, tmp_path: Path) -> None:
    write_samples(tmp_path / "data.parquet", [sample()])
    with serve(404) as judge:
        asks = ", ".join(f"{k}: {v}" for k, v in judge.endpoint(api_key_env="null").model_dump().items())
        more = setting(reward__judge="{" + asks + "}", reward__evidence__search_abilities="[visual_search]")
        ended = vtune(*evaluation(tiny, tmp_path / "data.parquet", tmp_path / "out", *more))
    assert ended.code == 1, ended.err
    assert "the judge gave no reply: NotFoundError" in ended.err
    assert len(judge.requests) == 1
    assert not (tmp_path / "out").exists()


def test_an_evaluation_records_everything_its_score_depends_on(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    data = lens / "heldout.parquet"
    ended = vtune(*evaluation(tiny, data, tmp_path / "out", *setting(rollouts=2)), "--json")
    assert ended.code == 0, ended.err
    result = json.loads((tmp_path / "out/results.json").read_text())
    assert json.loads(ended.out) == result
    assert (result["model"], result["samples"], result["rollouts"], result["limit"]) == (
        str(tiny),
        6,
        12,
        None,
    )
    suite = yaml.safe_load((tmp_path / "out/suite.yaml").read_text())
    assert result["suite"] == suite
    assert (suite["seed"], suite["rollouts"], suite["data"]) == (0, 2, [str(data)])
    assert result["environment"]["data"] == {str(data): fingerprint(data)}
    found = stored(tmp_path / "out")
    assert [(t.group, t.rollout) for t in found] == [(number, k) for number in range(6) for k in range(2)]
    assert [t.sample_id for t in found[::2]] == [sample.id for sample in read_samples(data)]
    assert all(t.reward is not None and t.images[0].data for t in found)
    assert result["faithfulness"]["n"] + result["faithfulness"]["n_unscored"] == 12
    assert result["sources"]["all"]["trajectories"] == 12

    before = (tmp_path / "out/results.json").read_bytes()
    again = vtune(*evaluation(tiny, data, tmp_path / "out"))
    assert again.code == 2
    assert f"{tmp_path / 'out'} holds results already" in again.err
    finished = vtune(*evaluation(tiny, data, tmp_path / "out", *setting(rollouts=2)), "--resume", "--json")
    assert finished.code == 0
    assert json.loads(finished.out) == result
    assert "is finished: nothing is left to do" in finished.err
    other = vtune(*evaluation(tiny, data, tmp_path / "out", *setting(rollouts=3)), "--resume")
    assert other.code == 2
    assert "differs in suite.rollouts" in other.err
    assert (tmp_path / "out/results.json").read_bytes() == before


def test_results_name_the_weights_that_a_link_pointed_to(tiny: Path, lens: Path, tmp_path: Path) -> None:
    newest = tmp_path / "newest"
    newest.symlink_to(tiny)
    words = evaluation(newest, lens / "heldout.parquet", tmp_path / "out")
    assert vtune(*words, "--limit", "1").code == 0
    newest.unlink()
    shutil.copytree(tiny, tmp_path / "later")
    newest.symlink_to(tmp_path / "later")
    again = vtune(*words, "--limit", "1", "--resume")
    assert again.code == 2
    assert "differs in model" in again.err
    assert f"run `vtune eval --resume --out {tmp_path / 'out'}` to continue with the original" in again.err
    assert vtune("eval", "--resume", "--out", tmp_path / "out").code == 0


def test_the_same_seed_gives_the_same_trajectories(tiny: Path, lens: Path, tmp_path: Path) -> None:
    found = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        words = evaluation(tiny, lens / "heldout.parquet", tmp_path / name, *setting(seed=seed))
        assert vtune(*words, "--limit", "3").code == 0
        found[name] = [t.token_ids for t in stored(tmp_path / name)]
    assert len(found["a"]) == 3
    assert found["a"] == found["b"]
    assert found["a"] != found["c"]
    assert json.loads((tmp_path / "a/results.json").read_text())["limit"] == 3


@pytest.mark.usefixtures("habits")
def test_known_habits_are_measured_correctly(tiny: Path, lens: Path, tmp_path: Path) -> None:
    words = evaluation(tiny, lens / "heldout.parquet", tmp_path / "out", *setting(rollout__max_new_tokens=90))
    ended = vtune(*words, *setting(rollout__max_tokens=900), "--json")
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    found = result["faithfulness"]
    assert {name: found[name]["value"] for name in NUMBERS} == pytest.approx(NUMBERS)
    assert (found["n"], found["n_unscored"]) == (6, 0)
    assert result["sources"]["lens"]["accuracy"] == pytest.approx(2 / 3)
    assert result["sources"]["lens"]["calls_ok"] == 4
    trajectories = stored(tmp_path / "out")
    assert [t.tool_scores for t in trajectories] == [(1.0,), (-0.5,), ()] * 2
    assert [[call.flags for call in t.calls] for t in trajectories] == [[()], [("whole_image",)], []] * 2


@pytest.mark.usefixtures("habits")
def test_black_crops_are_recorded_as_seen_with_the_real_places(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    words = evaluation(tiny, lens / "heldout.parquet", tmp_path / "out", *setting(rollout__max_new_tokens=90))
    ended = vtune(*words, *setting(rollout__max_tokens=900, call_images="black"), "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)["faithfulness"]
    # Red flags need the pictures, which are black, so they are unknown.
    looks = {name: value for name, value in NUMBERS.items() if name != "red_flags"}
    assert {name: found[name]["value"] for name in looks} == pytest.approx(looks)
    returned = [
        picture for t in stored(tmp_path / "out") for picture in t.images if picture.origin != "input"
    ]
    assert len(returned) == 4
    for picture in returned:
        assert not np.asarray(Image.open(io.BytesIO(picture.data or b""))).any()


@pytest.mark.parametrize("scorer", ["hrbench", "facets", "levels"])
def test_a_scorer_with_nothing_to_split_by_is_refused_before_generation(
    scorer: str, tiny: Path, lens: Path, tmp_path: Path
) -> None:
    words = evaluation(tiny, lens / "heldout.parquet", tmp_path / "out", *setting(scorer=scorer))
    ended = vtune(*words)
    assert ended.code == 2
    assert "which the score is split by" in ended.err
    assert "`scorer: mean`" in ended.err
    assert not (tmp_path / "out").exists()


def test_a_missing_model_is_refused_before_anything_is_written(lens: Path, tmp_path: Path) -> None:
    ended = vtune(*evaluation(tmp_path / "none", lens / "heldout.parquet", tmp_path / "out"))
    assert ended.code == 2
    assert "there is no model folder" in ended.err
    assert not (tmp_path / "out").exists()

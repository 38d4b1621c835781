"""RL with credit transfer and dynamic sampling, end to end; only the words of the policy are made up."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rollout.scripted import ScriptedEngine
from tests.runs.commands import Ended, numbers, rl, same_weights, setting, vtune
from tests.scripted import draw_with
from vtune.advantage.credit import token_advantages
from vtune.data.lens import EASY_DIGITS
from vtune.rollout.engine import Completion, Request
from vtune.schema.parquet import read_trajectories
from vtune.schema.trajectory import Trajectory

pytestmark = pytest.mark.train

LOOK = '<think>I look.\n<code>\nimage.crop((0, 0, 60, 60)).save("look.png")\n</code>'


class Looker(ScriptedEngine):
    """Looks at the same place every time; then siblings answer all digits, or all the same wrong one.

    All siblings of a prompt agree if its number is 1 or 2, so that nothing can be learnt from them.
    """

    async def generate(self, request: Request) -> Completion:
        *_, group, rollout, turn = request.key
        answer = f"<think>I see.</think><answer>{'0' if group in (1, 2) else EASY_DIGITS[rollout]}</answer>"
        return await ScriptedEngine(self._chat, [answer if turn else LOOK]).generate(request)


@dataclass(frozen=True)
class Runs:
    whole: Path
    resumed: Path
    ended: Ended
    report: Ended


@pytest.fixture(scope="module")
def runs(tiny: Path, lens: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    root = tmp_path_factory.mktemp("credit")
    settings = setting(
        steps=3,
        group_size=5,
        checkpoints__every=1,
        rollout__prompt="codev",
        rollout__max_new_tokens=400,
        rollout__max_tokens=4000,
        update__micro_tokens=4096,
        reward__tool=0.0,
        advantage__dynamic_sampling_rounds=1,
        loss__algorithm="gspo",
        loss__importance_cap="null",
        loss__aggregation="sequence_mean",
        credit="{beta: 0.25, tools: {zoom: {similarity: 0.7, confidence: 0.5}}}",
    )
    with pytest.MonkeyPatch.context() as patch:
        draw_with(
            patch,
            lambda policy, **_: Looker(policy.chat, ["never"]),
        )
        whole = vtune(*rl(tiny.resolve(), lens / "train.parquet", root / "whole", *settings))
        assert whole.code == 0, whole.err
        # As if it had been killed in its second step.
        shutil.copytree(root / "whole", root / "resumed", symlinks=True)
        for later in ("step-000002", "step-000003"):
            shutil.rmtree(root / "resumed" / "checkpoints" / later)
        words = rl(tiny.resolve(), lens / "train.parquet", root / "resumed", *settings, "--resume")
        ended = vtune(*words)
    return Runs(
        root / "whole", root / "resumed", ended, vtune("report", root / "whole", "--credit", "--json")
    )


def stored(run: Path, step: int) -> list[Trajectory]:
    return list(read_trajectories(run / "trajectories" / f"step-{step:06d}.parquet"))


def test_zero_variance_prompts_are_replaced_and_counted(runs: Runs) -> None:
    told = numbers(runs.whole)
    asked = [sorted({t.group for t in stored(runs.whole, step)}) for step in range(3)]
    # Of 0 and 1 one has zero variance; 2, which replaces it, does too, and stays unused.
    assert asked == [[0, 1, 2], [3, 4], [5, 6]]
    assert [told[step, "all"]["groups_replaced"] for step in range(3)] == [1, 0, 0]
    assert [told[step, "all"]["groups_zero_variance"] for step in range(3)] == [pytest.approx(2 / 3), 0, 0]


def test_a_failing_look_shared_with_a_success_is_punished_less_than_its_answer(runs: Runs) -> None:
    corrected = 0
    for step in range(3):
        for trajectory in stored(runs.whole, step):
            assert trajectory.reward is not None
            assert trajectory.advantage is not None
            (gain,) = trajectory.call_advantages
            assert gain is not None
            if trajectory.reward.accuracy == 1.0 or trajectory.advantage >= 0:
                assert gain == pytest.approx(trajectory.advantage)
                continue
            corrected += 1
            # One in five is right: 0.8 and -0.2, since the format score is the same for all.
            assert (trajectory.advantage, gain) == (pytest.approx(-0.2), pytest.approx(0.0))
            each = token_advantages(trajectory)
            (call,) = trajectory.calls
            assert set(each[: call.span[1] - call.span[0]]) == {gain}
            assert set(each[call.span[1] - call.span[0] :]) == {trajectory.advantage}
    assert corrected == 4 * 5
    row = numbers(runs.whole)[1, "all"]
    assert row["credit_correctable_calls"] == row["credit_corrected_calls"] == 1.0
    assert row["credit_correction"] == pytest.approx(0.2)
    assert row["credit_zoom_delta"] == row["credit_zoom_delta_gated"] == pytest.approx(0.8)
    assert row["credit_delta"] == row["credit_delta_gated"] == pytest.approx(0.8)
    assert row["credit_gated_calls"] == row["credit_zoom_gated_calls"] == 8
    assert "truncated_share" not in row


def test_a_resumed_run_continues_with_the_remaining_prompts(runs: Runs) -> None:
    assert runs.ended.code == 0, runs.ended.err
    assert numbers(runs.resumed) == numbers(runs.whole)
    for step in (1, 2):
        first, second = (stored(run, step) for run in (runs.whole, runs.resumed))
        assert [(t.sample_id, t.group, t.token_ids) for t in first] == [
            (t.sample_id, t.group, t.token_ids) for t in second
        ]
    last = "checkpoints/step-000003"
    assert same_weights(runs.whole / last, runs.resumed / last)
    assert not same_weights(runs.whole / last, runs.whole / "checkpoints/step-000001")


def test_the_report_shows_what_the_run_logged(runs: Runs) -> None:
    assert runs.report.code == 0, runs.report.err
    (told,) = json.loads(runs.report.out)["runs"]
    assert told["transferred"]
    assert told["cost"]["measured"] == "in the run"
    row = numbers(runs.whole)[1, "all"]
    assert told["training"][1]["correctable_calls"] == row["credit_correctable_calls"]
    assert told["training"][1]["correction"] == pytest.approx(row["credit_correction"], abs=1e-6)
    assert told["training"][1]["delta_gated"] == pytest.approx(row["credit_delta_gated"], abs=1e-6)

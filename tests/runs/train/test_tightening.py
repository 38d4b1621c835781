"""IoU thresholds that tighten during a run, and are restored by `--resume`."""

import io
from pathlib import Path

import pytest
from PIL import Image

from tests.rollout.scripted import ScriptedEngine
from tests.runs.commands import evaluation, numbers, rl, setting, vtune
from tests.scripted import draw_with
from vtune.errors import RunFailed
from vtune.rollout.engine import Completion, Request
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.parquet import read_trajectories, write_samples
from vtune.schema.sample import Sample

pytestmark = pytest.mark.train

ADAPTIVE = "{schedule: adaptive, thresholds: [0.5, 0.7, 0.8, 0.95], until: [], target: 0.5}"
TRUTH = '[{"label": "", "bbox_2d": [100, 100, 500, 500]}]'
CLOSE, FAR = "[100, 100, 500, 460]", "[100, 100, 500, 140]"
"""IoU of 0.9 and 0.1 with the truth."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = io.BytesIO()
    Image.new("RGB", (56, 56), "white").save(out, "PNG")
    path = tmp_path_factory.mktemp("boxes") / "boxes.parquet"
    write_samples(
        path,
        [
            Sample(
                id=f"boxes/{number}",
                source="boxes",
                prompt=(Message("user", f"{IMAGE}Where is it?", (0,)),),
                images=(Picture(data=out.getvalue()),),
                ability="grounding",
                ground_truth=TRUTH,
                verifier="grounding",
                verifier_parm={"space": "relative_1000"},
            )
            for number in range(2)
        ],
    )
    return path


class Pointer(ScriptedEngine):
    """Three of four rollouts of a group point well. Fails in one step, like a dead server."""

    def __init__(self, *given: object, fails_in: int | None) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._fails_in = fails_in

    async def generate(self, request: Request) -> Completion:
        _, step, _, rollout, _ = request.key
        if step == self._fails_in:
            raise RunFailed("no server is left")
        answer = f"<think>I look.</think><answer>{CLOSE if rollout else FAR}</answer>"
        return await ScriptedEngine(self._chat, [answer]).generate(request)


def test_a_threshold_continues_after_resume(
    tiny: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rises as long as three of four exceed it, to 0.95, which none exceeds, and falls again."""

    def engine(fails_in: int | None) -> None:
        draw_with(
            monkeypatch,
            lambda policy, **_: Pointer(policy.chat, ["never said"], fails_in=fails_in),
        )

    words = rl(tiny, data, tmp_path / "run", *setting(steps=6, reward__iou=ADAPTIVE, reward__tool=0.0))
    engine(fails_in=3)
    assert vtune(*words).code == 1
    engine(fails_in=None)
    resumed = vtune(*words, "--resume")
    assert resumed.code == 0, resumed.err
    told = numbers(tmp_path / "run")
    assert [told[step, "all"]["iou_threshold"] for step in range(6)] == [0.5, 0.7, 0.8, 0.95, 0.8, 0.95]
    assert [told[step, "all"]["iou_success"] for step in range(6)] == [0.75, 0.75, 0.75, 0.0, 0.75, 0.0]
    assert [told[step, "all"]["reward_accuracy"] for step in range(6)] == pytest.approx(
        [0.675, 0.675, 0.675, 0.0, 0.675, 0.0]
    )
    found = [t.reward for t in read_trajectories(tmp_path / "run" / "trajectories" / "step-000003.parquet")]
    assert [round(r.parts["iou"], 6) for r in found if r is not None] == [0.1, 0.9, 0.9, 0.9] * 2


def test_boxes_without_a_threshold_are_refused_before_the_start(
    tiny: Path, data: Path, tmp_path: Path
) -> None:
    ended = vtune(*rl(tiny, data, tmp_path / "run", *setting(reward__tool=0.0)))
    assert ended.code == 2
    assert "reward.iou" in ended.err
    assert "boxes/0" in ended.err
    assert not (tmp_path / "run").exists()


def test_an_evaluation_has_one_threshold_and_no_course(tiny: Path, data: Path, tmp_path: Path) -> None:
    ended = vtune(*evaluation(tiny, data, tmp_path / "eval", *setting(reward__iou=ADAPTIVE)))
    assert ended.code == 2
    assert "an evaluation has no training steps" in ended.err
    assert not (tmp_path / "eval").exists()

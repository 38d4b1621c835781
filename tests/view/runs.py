"""Runs for tests of the viewer, made from records without a model."""

from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from PIL import Image

from vtune.schema.message import Message, Picture
from vtune.schema.parquet import write_trajectories
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Call, Crop, Trajectory


def png(width: int = 64, height: int = 48, colour: str = "navy") -> bytes:
    content = BytesIO()
    Image.new("RGB", (width, height), colour).save(content, "PNG")
    return content.getvalue()


LOOKED = Trajectory(
    sample_id="lens/7",
    source="lens",
    messages=(
        Message("system", "Look closely."),
        Message("user", "<image>Which digit is on the Red sign?", (0,)),
        Message("assistant", '<think>I look.</think>\n<code>image.crop((8, 8, 24, 20)).save("x.png")</code>'),
        Message("user", "<sandbox_output>\n<image>\n</sandbox_output>", (1,)),
        Message("assistant", "It is 4.\n<answer>4</answer>"),
    ),
    images=(Picture(data=png()), Picture(data=png(16, 12, "red"), origin="call:0")),
    calls=(
        Call(
            tool="python",
            arguments='{"code": "image.crop((8, 8, 24, 20))"}',
            status="ok",
            images=(1,),
            crops=(Crop(0, (8.0, 8.0, 24.0, 20.0), 1, look="verified"),),
            seconds=0.25,
            span=(3, 5),
        ),
    ),
    token_ids=(1, 2, 3, 4, 5, 6, 7, 8),
    loss_mask=(False, False, True, True, True, False, True, True),
    logprobs=(None, None, -0.1, -0.2, -0.3, None, -0.4, -0.5),
    answer="4",
    reward=Reward(total=1.5, accuracy=1.0, format=1.0, tool=1.0, why="accuracy: exact"),
    tool_scores=(1.0,),
    advantage=0.5,
    call_advantages=(0.75,),
)
MISSED = replace(
    LOOKED,
    rollout=1,
    calls=(replace(LOOKED.calls[0], flags=("whole_image",), status="error", error="NameError"),),
    answer="7",
    stop_reason="length",
    reward=Reward(total=0.1, accuracy=0.0, format=1.0, tool=0.0, why="accuracy: wrong", parts={"iou": 0.4}),
    tool_scores=(0.0,),
    advantage=-0.5,
)
UNSCORED = replace(
    LOOKED,
    sample_id="charts/1",
    source="charts",
    group=1,
    calls=(),
    images=LOOKED.images[:1],
    messages=LOOKED.messages[1:2],
    loss_mask=(),
    token_ids=(),
    logprobs=(),
    answer=None,
    reward=Reward(total=None, accuracy=None, format=None, tool=None, why="the judge is down"),
    tool_scores=(),
    call_advantages=(),
)


def make_run(folder: Path, steps: dict[int, Sequence[Trajectory]]) -> Path:
    """Make a run folder with an empty recipe."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text("steps: 2\n", encoding="utf-8")
    (folder / "metrics.jsonl").write_text(
        "".join(
            f'{{"step": {step}, "source": "{source}", "reward": 0.{step}, "accuracy": 0.5}}\n'
            for step in steps
            for source in ("lens", "all")
        ),
        encoding="utf-8",
    )
    for step, trajectories in steps.items():
        write_trajectories(folder / "trajectories" / f"step-{step:06d}.parquet", trajectories)
    return folder

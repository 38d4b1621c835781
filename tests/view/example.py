"""A realistic run: a hundred steps on two sources, one of which gets worse after step 60."""

import io
import json
import random
from pathlib import Path

from PIL import Image

from vtune.config import dump_recipe, find, load_recipe
from vtune.data import lens
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.message import Message, Picture
from vtune.schema.parquet import load_picture, write_samples, write_trajectories
from vtune.schema.pixels import decode_picture
from vtune.schema.reward import Reward
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Crop, Trajectory

STEPS, EVERY, GROUP, TURN = 100, 20, 4, 60
SOURCES = "lens", "signs"


def make_example(folder: Path, *, seed: int = 0, learning_rate: float = 1e-6) -> Path:
    """Make a run folder with its data beside it; the same at every call."""
    data = folder.parent / "questions.parquet"
    asked = [
        Sample(**{**_fields(sample), "id": f"{SOURCES[n % 2]}/{n}", "source": SOURCES[n % 2]})
        for n, sample in enumerate(lens.samples(2, 6, seed=0, split="train"))
    ]
    if not data.exists():
        write_samples(data, asked)
    folder.mkdir(parents=True)
    settings = [f"data=[{data}]", f"steps={STEPS}", f"seed={seed}", f"update.learning_rate={learning_rate}"]
    recipe = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, settings)
    (folder / "recipe.yaml").write_text(dump_recipe(recipe))
    rng = random.Random(seed)
    lines = [line for step in range(STEPS) for line in _metrics(step, rng)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for step in [*range(0, STEPS, EVERY), STEPS - 1]:
        drawn = [
            _trajectory(sample, group, rollout, step, rng)
            for group, sample in enumerate(asked)
            for rollout in range(GROUP)
        ]
        write_trajectories(folder / "trajectories" / f"step-{step:06d}.parquet", drawn)
    return folder


def _fields(sample: Sample) -> dict[str, object]:
    return {name: getattr(sample, name) for name in Sample.__dataclass_fields__}


def _skill(source: str, step: int) -> float:
    """The share of right answers, which falls after `TURN` for one source."""
    rising = 0.2 + 0.6 * min(step, TURN) / TURN
    return rising if source == "lens" or step <= TURN else rising - 0.5 * (step - TURN) / (STEPS - TURN)


def _metrics(step: int, rng: random.Random) -> list[dict[str, object]]:
    rows = {}
    for source in SOURCES:
        skill = _skill(source, step)
        rows[source] = {
            "reward": 1.5 * skill + rng.gauss(0, 0.03),
            "accuracy": min(max(skill + rng.gauss(0, 0.03), 0), 1),
            "evidence_rate": min(max(0.9 * skill + rng.gauss(0, 0.03), 0), 1),
            "truncated": max(0.8 - skill, 0) * (source == "signs") * (step > TURN),
            "tool_calls": 1 + rng.random() / 5,
            "response_tokens": 60 + 120 * (1 - skill),
        }
    mean = {name: (rows["lens"][name] + rows["signs"][name]) / 2 for name in rows["lens"]}
    times = {"seconds": 12.0, "seconds_rollout": 8.5, "seconds_update": 3.0, "seconds_reward": 0.4}
    mean |= times | {"entropy": 2.0 - step / STEPS + rng.gauss(0, 0.02)}
    return [{"step": step, "source": name, **row} for name, row in [*rows.items(), ("all", mean)]]


def _trajectory(sample: Sample, group: int, rollout: int, step: int, rng: random.Random) -> Trajectory:
    right = rng.random() < _skill(sample.source, step)
    looked = rng.random() < (0.85 if right else 0.3)
    picture = sample.images[0]
    shown = decode_picture(load_picture(picture, Path()))
    x0, y0, x1, y1 = sample.evidence[0].bbox
    if not looked:
        x0, x1 = (x0 + shown.width / 2) % shown.width, (x1 + shown.width / 2) % shown.width
        x0, x1 = (x0, x1) if x0 < x1 else (0, x1 - x0 + shown.width)
    pad = 12
    box = max(x0 - pad, 0), max(y0 - pad, 0), min(x1 + pad, shown.width), min(y1 + pad, shown.height)
    out = io.BytesIO()
    crop = shown.crop(tuple(round(side) for side in box))  # type: ignore[arg-type]
    crop.resize((crop.width * 3, crop.height * 3), Image.Resampling.LANCZOS).save(out, "PNG")
    code = f'crop = image.crop({tuple(round(side) for side in box)})\ncrop.resize(...).save("crop.png")'
    truth = sample.ground_truth
    answer = truth if right else str((int(truth) + 1) % 10 if truth.isdigit() else "none")
    found = "I can read it now." if looked else "This part shows nothing of it, so I guess."
    count = 24
    return Trajectory(
        sample_id=sample.id,
        source=sample.source,
        group=group,
        rollout=rollout,
        policy_version=step,
        messages=(
            *sample.prompt,
            Message("assistant", f"<think>I look at it closely.</think>\n<code>\n{code}\n</code>"),
            Message("user", "<sandbox_output>\n<image>\n</sandbox_output>", (1,)),
            Message("assistant", f"<think>{found}</think>\n<answer>{answer}</answer>"),
        ),
        images=(picture, Picture(data=out.getvalue(), origin="call:0")),
        calls=(
            Call(
                tool="python",
                arguments=json.dumps({"code": code}),
                status="ok",
                images=(1,),
                crops=(Crop(0, box, 1, look="verified"),),
                seconds=0.02,
                span=(8, 14),
            ),
        ),
        token_ids=tuple(rng.randrange(300, 9000) for _ in range(count)),
        loss_mask=tuple(8 <= at < 14 or at >= 18 for at in range(count)),
        logprobs=tuple(-4 * rng.random() ** 3 if 8 <= at < 14 or at >= 18 else None for at in range(count)),
        answer=answer,
        stop_reason="length" if not right and sample.source == "signs" and step > TURN else "answer",
        reward=Reward(
            total=right + 0.3 + 0.5 * looked,
            accuracy=float(right),
            format=1.0,
            tool=1.0 if looked else 0.25,
            why="accuracy: equal" if right else f"accuracy: {answer} is not {truth}",
        ),
        tool_scores=(1.0 if looked else 0.25,),
        advantage=0.6 if right else -0.4,
        call_advantages=(0.6 if right or looked else -0.4,),
    )

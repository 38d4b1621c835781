"""Small samples and trajectories whose calls look at a picture of 100 x 100 pixels."""

import io
from typing import Any

import numpy as np
from PIL import Image

from vtune.reward.recipe import EvidenceLevels, IouSchedule, RewardRecipe
from vtune.schema.box import Box
from vtune.schema.message import Message, Picture
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Call, Crop, Trajectory

TARGET: Box = (40, 40, 60, 60)

LEVELS = EvidenceLevels(
    full=1.0,
    partial=0.5,
    miss=0.25,
    red_flag=-0.5,
    full_share=0.75,
    full_size=0.25,
    partial_share=0.25,
    partial_size=0.04,
    target_share=0.5,
    whole_image_share=0.9,
    repeated_iou=0.95,
    search_abilities=("visual_search",),
    search_sources=("vstar",),
)

STAGED = IouSchedule(schedule="staged", thresholds=(0.85, 0.95, 0.99), until=(0.1, 0.25), target=None)

RIGHT = "<think>I see.</think><answer>B</answer>"
WRONG = "<think>I see.</think><answer>C</answer>"
CODE = "<think>Look.<code>look()</code>"


def recipe(**changes: Any) -> RewardRecipe:
    values: dict[str, Any] = {
        "accuracy": 1.0,
        "format": 0.3,
        "tool": 0.5,
        "tool_gated": False,
        "weighting": "recipe",
        "max_unscored": 0.05,
        "evidence": LEVELS,
        "judge": None,
    }
    return RewardRecipe(**(values | changes))


def encode(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind, **({"quality": 75} if kind == "JPEG" else {}))
    return out.getvalue()


def noise(width: int, height: int, seed: int) -> np.ndarray:
    """Soft blotches of six pixels, like in photographs, which survive JPEG."""
    small = np.random.default_rng(seed).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height)))


PIXELS = noise(100, 100, 0)
INPUT = Picture(encode(PIXELS), seen=(100, 100))


def sample(*boxes: Box, ability: str = "visual_search", **changes: Any) -> Sample:
    values: dict[str, Any] = {
        "id": "quiz/1",
        "source": "quiz",
        "prompt": (Message("user", "<image>What colour is the cup?\nOptions:\nA. red\nB. blue"),),
        "images": (INPUT,),
        "ground_truth": "B",
        "verifier": "choice",
        "ability": ability,
        "tools": ("python",),
        "evidence": tuple(Evidence("cup", 0, box) for box in boxes),
    }
    return Sample(**(values | changes))


def looks(*calls: Box | Picture | str, reply: str = RIGHT, **changes: Any) -> Trajectory:
    """A trajectory with one call per argument.

    A box stands for a crop that is shown, a picture is returned without a crop, and a text is the status of a
    call that returned nothing.
    """
    pictures = [INPUT]
    made = []
    for k, what in enumerate(calls):
        crops: tuple[Crop, ...] = ()
        shown: tuple[int, ...] = (len(pictures),)
        if isinstance(what, str):
            made.append(Call(tool="python", arguments="{}", status=what))  # type: ignore[arg-type]
            continue
        if isinstance(what, Picture):
            pictures.append(Picture(what.data, what.path, f"call:{k}"))
        else:
            x0, y0, x1, y1 = (int(side) for side in what)
            crops = (Crop(0, what, len(pictures)),)
            # As a policy's processor enlarges small pictures.
            size = (4 * (x1 - x0), 4 * (y1 - y0))
            pictures.append(Picture(encode(PIXELS[y0:y1, x0:x1]), origin=f"call:{k}", seen=size))
        made.append(Call(tool="python", arguments="{}", status="ok", images=shown, crops=crops))
    turns = [Message("user", "?"), *(Message("assistant", CODE) for _ in made), Message("assistant", reply)]
    values: dict[str, Any] = {
        "sample_id": "quiz/1",
        "source": "quiz",
        "messages": tuple(turns),
        "images": tuple(pictures),
        "calls": tuple(made),
    }
    return Trajectory(**(values | changes))

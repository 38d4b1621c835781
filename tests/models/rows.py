"""Conversations about noise pictures, for tests that need tokens and pixels."""

import io

import numpy as np
from PIL import Image

from vtune.models.batch import Row
from vtune.models.pictures import Pixels
from vtune.models.policy import Policy
from vtune.schema.message import Message


def picture(width: int, height: int, *, seed: int = 0, kind: str = "PNG") -> bytes:
    """An encoded noise picture."""
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).save(out, kind)
    return out.getvalue()


LARGE, SMALL, WIDE = picture(448, 448), picture(56, 90, seed=1), picture(300, 60, seed=2)
SHOWN = ((LARGE, SMALL, WIDE), (LARGE,), (WIDE,))
"""The pictures in each row of `ragged`."""


def ragged(policy: Policy) -> list[Row]:
    """Three rows of different lengths that share pictures; the first has two turns and three pictures."""
    chat, read = policy.chat, policy.pictures.read
    large, small, wide = read(LARGE), read(SMALL), read(WIDE)
    two_turns = chat.prompt([Message("user", "<image><image>Which digit?")], [large, small])
    two_turns += chat.words("<think>I look closer.\n<code>crop</code>")
    two_turns += chat.observation("<sandbox_output>\n<image>\n</sandbox_output>", [wide], ended=False)
    return [
        Row(two_turns, [large, small, wide]),
        Row(chat.prompt([Message("user", "<image>Red?")], [large]), [large]),
        Row(chat.prompt([Message("user", "<image>And which digit is on it?")], [wide]), [wide]),
    ]


def stock(policy: Policy, rows: list[Row]) -> dict[str, object]:
    """Pictures as the stock forward takes them: repeated as often as they are shown."""
    import torch

    shown: list[Pixels] = [pixels for row in rows for pixels in row.pixels]
    return {
        "pixel_values": torch.cat([pixels.patches for pixels in shown]),
        "image_grid_thw": torch.tensor([pixels.grid for pixels in shown]),
    }

"""A model behind an endpoint with predetermined looks and answers."""

import base64
import hashlib
import io
from collections.abc import Sequence
from typing import Any

from PIL import Image

from vtune.models.pictures import PixelBudget
from vtune.rollout.openai import Served, ServedPolicy
from vtune.schema.sample import Sample

STOP = "</code>"


def print_of(picture: Image.Image) -> str:
    return hashlib.sha256(picture.convert("RGB").tobytes()).hexdigest()


def sent(url: str) -> Image.Image:
    head, _, data = url.partition(",")
    assert head == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


def pictures_of(message: dict[str, Any]) -> list[Image.Image]:
    if isinstance(message["content"], str):
        return []
    return [sent(part["image_url"]["url"]) for part in message["content"] if part["type"] == "image_url"]


class Looker:
    """For every three samples: crops the sign and answers right; shows the whole picture and answers right;
    answers wrong without a look. It knows a sample by its picture, and stops before `</code>` as servers do.
    """

    def __init__(self, samples: Sequence[Sample], budget: PixelBudget) -> None:
        eyes = ServedPolicy.of(budget, Served()).pictures
        self._known: dict[str, tuple[int, Sample]] = {}
        for number, sample in enumerate(samples):
            seen = eyes.shown(eyes.read(sample.images[0].data or b""))
            self._known[print_of(seen)] = number, sample
        assert len(self._known) == len(samples)

    def number(self, body: dict[str, Any]) -> int | None:
        """The number of the sample in a request; None for a greeting."""
        first = next(picture for message in body["messages"] for picture in pictures_of(message))
        found = self._known.get(print_of(first))
        return None if found is None else found[0]

    def __call__(self, body: dict[str, Any]) -> str:
        number = self.number(body)
        if number is None:
            return "1"
        sample, habit = list(self._known.values())[number][1], number % 3
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        x0, y0, x1, y1 = (0, 0, 448, 448) if habit else (round(side) for side in sample.evidence[0].bbox)
        if turn == 0 and habit < 2:
            assert STOP in body["stop"]
            return f'<think>I look.<code>image.crop(({x0}, {y0}, {x1}, {y1})).save("look.png")'
        said = "none" if habit == 2 else sample.ground_truth
        return f"<think>So it is.</think><answer>{said}</answer>"

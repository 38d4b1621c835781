"""Rows for tests of filters."""

import io
import json
from pathlib import Path
from typing import Any

from PIL import Image

from vtune.curate.item import Item
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Sample


def png(pixels: Any) -> bytes:
    """A picture from an array, or a picture of one colour with the given size."""
    out = io.BytesIO()
    (Image.new("RGB", pixels, "teal") if isinstance(pixels, tuple) else Image.fromarray(pixels)).save(
        out, "PNG"
    )
    return out.getvalue()


def sample(
    text: str = "What is x?", truth: str = "4", *, pictures: tuple[bytes, ...] = (), **more: Any
) -> Sample:
    marks = IMAGE * len(pictures)
    values: dict[str, Any] = {
        "id": "s/0",
        "source": "s",
        "prompt": (Message("user", f"{marks}{text}", tuple(range(len(pictures)))),),
        "images": tuple(Picture(data=data) for data in pictures),
        "ability": "math",
        "ground_truth": truth,
        "verifier": "exact",
    }
    return Sample(**(values | more))


def item(text: str = "What is x?", truth: str = "4", *, source: str = "s", **more: Any) -> Item:
    return Item(sample(text, truth, source=source, **more), source, Path())


def detection(*boxes: tuple[str, list[float]], source: str = "s", **more: Any) -> Item:
    """A sample about labelled boxes in 0-1000."""
    truth = json.dumps([{"label": label, "bbox_2d": box} for label, box in boxes])
    values: dict[str, Any] = {
        "ability": "detection",
        "verifier": "detection",
        "verifier_parm": {"space": "relative_1000"},
    }
    return item("Detect.", truth, source=source, **(values | more))

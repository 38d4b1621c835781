"""Decode a picture on behalf of the trainer: a file in, raw pixels out."""

from pathlib import Path
from typing import Any

import PIL.Image

from .artifacts import FORMATS, UNREADABLE
from .folders import INPUTS


def decode(name: str, into: str, max_pixels: int) -> dict[str, Any]:
    """Decode an input file into a file of the workspace.

    Returns:
        `mode` (L, RGB or RGBA) and `size` of the pixels written, or `refused`, the reason why there are none.
    """
    try:
        picture = PIL.Image.open(f"../{INPUTS}/{name}", formats=FORMATS)
        if picture.width * picture.height > max_pixels:
            return {"refused": f"it has more than the {max_pixels} pixels allowed"}
        mode = "RGBA" if picture.has_transparency_data else "L" if picture.mode == "L" else "RGB"
        Path(into).write_bytes(picture.convert(mode).tobytes())
    except UNREADABLE:
        return {"refused": "it is not a picture"}
    return {"mode": mode, "size": list(picture.size)}

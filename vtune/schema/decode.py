"""What Pillow raises when a picture is damaged, cut short, or no picture."""

import struct
import zlib
from typing import Any

from PIL import Image

UNDECODABLE = (
    OSError,
    EOFError,
    SyntaxError,
    ValueError,
    IndexError,
    TypeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
"""Its readers of damaged files raise all of these, at the head or only when the pixels are asked for."""


def eight_bits(picture: Image.Image) -> Image.Image:
    """A picture whose grey levels have 8 bits: Pillow would cut those of 16 off, to white nearly everywhere.

    One that holds 8 bits in 16, as Pillow makes them of others, stays as it is.
    """
    if not picture.mode.startswith("I"):
        return picture
    levels = picture.convert("I")
    most: Any = levels.getextrema()[1]
    return levels.point(lambda level: level * (1 / 256)).convert("L") if most > 255 else picture


def opaque(picture: Image.Image) -> Image.Image:
    """A picture in RGB, decoded; what shows through it is white, as for vLLM's readers.

    Without a ground, the hidden colours of a transparent picture would be shown: to some readers, not to all.
    """
    picture.load()
    picture = eight_bits(picture)
    if not picture.has_transparency_data:
        return picture if picture.mode == "RGB" else picture.convert("RGB")
    layers = picture.convert("RGBA")
    ground = Image.new("RGBA", layers.size, "white")
    return Image.alpha_composite(ground, layers).convert("RGB")

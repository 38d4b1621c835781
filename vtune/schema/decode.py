"""Pictures from Pillow as everything sees them: on white, 8-bit; and what damaged ones raise."""

import io
import struct
import zlib
from typing import Any

from PIL import ExifTags, Image

from vtune.schema.heads import PNG_MARK

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

    As many bits count as are in use: of 12 in 16, as X-rays have them, the 4 that are empty are left out.
    One that holds 8, as Pillow makes them of others, stays as it is.
    """
    if not picture.mode.startswith("I"):
        return picture
    levels = picture.convert("I")
    most: Any = levels.getextrema()[1]
    share = 256 / (1 << int(most).bit_length())
    return levels.point(lambda level: level * share).convert("L") if most > 255 else picture


TURNED = range(2, 9)
"""EXIF orientations that are not upright; others are no orientations."""


def is_turned(content: bytes) -> bool:
    """Whether EXIF says that a picture is to be shown turned or mirrored; nothing here does that."""
    try:
        with Image.open(io.BytesIO(content)) as picture:
            # Without EXIF in its head, a PNG would be decoded in search of it.
            return "exif" in picture.info and picture.getexif().get(ExifTags.Base.Orientation) in TURNED
    except UNDECODABLE:
        return False


def is_deep(content: bytes) -> bool:
    """Whether a file is a PNG of 16 bits of grey, as its head says."""
    return content.startswith(PNG_MARK) and content[24:26] == b"\x10\x00"


def eight_bit_file(content: bytes) -> bytes:
    """A PNG of 16 bits of grey as one of 8, for whoever opens it; what cannot be decoded as it is."""
    try:
        picture = Image.open(io.BytesIO(content), formats=["PNG"])
        picture.load()
    except UNDECODABLE:
        return content
    shown = eight_bits(picture)
    if shown is picture:
        return content
    file = io.BytesIO()
    shown.save(file, "PNG", compress_level=1)
    return file.getvalue()


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
